"""Expired leases, and the check that says what becomes of their tasks."""
