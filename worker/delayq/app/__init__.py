"""Typed tasks: an App is a set of functions, each a kind of task that is scheduled and run by its name."""

from delayq.app.app import App
from delayq.app.kind import BatchContext, Context, TaskKind
from delayq.app.middleware import Scheduling, TaskRun

__all__ = ["App", "BatchContext", "Context", "Scheduling", "TaskKind", "TaskRun"]
