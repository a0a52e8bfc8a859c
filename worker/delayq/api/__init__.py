"""The HTTP API of a queue."""
