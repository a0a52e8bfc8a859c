"""Metrics of scanners and workers, read, and what they say of a queue."""
