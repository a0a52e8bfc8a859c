"""Autoscaling: the number of workers of a queue, and the victims of a scale-down."""
