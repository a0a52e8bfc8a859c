"""The shop's tasks."""
