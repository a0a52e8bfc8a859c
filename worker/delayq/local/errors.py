"""Why `delayq run` cannot run here. A wrong document or handler is errors.InvalidDocument, as everywhere."""

from __future__ import annotations

from delayq.errors import DelayQError


class CannotRun(DelayQError):
    """Something that `delayq run` needs is not there, or in use."""

    def __init__(self, message: str, hint: str) -> None:
        """`hint` says what to do about it."""
        super().__init__(message)
        self.hint = hint


class DataDirUnusable(CannotRun):
    """The data directory cannot be written, or another run uses it."""


class NoServer(CannotRun):
    """There is no Redis server to embed, or it does not start."""
