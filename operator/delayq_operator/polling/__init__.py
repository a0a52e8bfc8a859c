"""Periodic scrapes of scanners and workers."""
