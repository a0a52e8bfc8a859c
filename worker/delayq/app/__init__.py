"""Typed tasks: an App is a set of functions, each a kind of task that is scheduled and run by its name."""

from delayq.app.app import App
from delayq.app.kind import BatchContext, Context, TaskKind

__all__ = ["App", "BatchContext", "Context", "TaskKind"]
