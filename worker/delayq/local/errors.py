"""The error of `delayq run`. An invalid document or handler raises errors.InvalidDocument."""

from __future__ import annotations

from delayq.errors import DelayQError


class CannotRun(DelayQError):
    """A resource of `delayq run` is missing or in use: a server, a port, the data directory."""

    def __init__(self, message: str, hint: str) -> None:
        """`hint`: what the user can do."""
        super().__init__(message)
        self.hint = hint
