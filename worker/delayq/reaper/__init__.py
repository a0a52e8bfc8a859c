"""The backstop: sweep, reconcile, retention, erase."""
