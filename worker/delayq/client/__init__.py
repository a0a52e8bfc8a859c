"""Schedule, cancel, reschedule and inspect tasks; dead letters; asynchronous and blocking."""
