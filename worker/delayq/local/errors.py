"""Errors of `delayq run`. An invalid document or handler raises errors.InvalidDocument."""

from __future__ import annotations

from delayq.errors import DelayQError


class CannotRun(DelayQError):
    """A resource of `delayq run` is missing or in use."""

    def __init__(self, message: str, hint: str) -> None:
        """`hint`: what the user can do."""
        super().__init__(message)
        self.hint = hint


class DataDirUnusable(CannotRun):
    """The data directory is not writable, or another run uses it."""


class NoServer(CannotRun):
    """There is no Redis server to embed, or it does not start."""
