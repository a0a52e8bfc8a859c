"""The task ID and the kind in every log line of a handler."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from delayq import TaskRun

CURRENT: ContextVar[TaskRun | None] = ContextVar("current", default=None)


class LogContext(logging.Filter):
    """Adds fields to the records of a run."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record."""
        if run := CURRENT.get():
            several = len(run.tasks) > 1  # only with batch=
            which = {"tasks": len(run.tasks)} if several else {"task_id": run.tasks[0].id}
            record.fields = {"kind": run.kind.name, **which, **getattr(record, "fields", {})}
        return True


@contextmanager
def log_context(run: TaskRun) -> Iterator[None]:
    """Let the filter know the run."""
    token = CURRENT.set(run)
    try:
        yield
    finally:
        CURRENT.reset(token)
