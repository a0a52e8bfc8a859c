"""Recurring schedules: when their occurrences are due. Pure; Redis and Kubernetes are elsewhere."""
