"""The block around one run of a task under a SQL guard, for coroutine and plain functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.errors import Bury, GuardLost, GuardUnavailable, Retry
from delayq.guards.base import Guarded
from delayq.guards.sql.engines import SqlHold
from delayq.guards.sql.errors import away, busy, lost_under, undone_under

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from sqlalchemy import Connection

    from delayq.guards.sql.guard import SqlGuard
    from delayq.protocol.envelope import Task

UNDONE: Final = "the database rolled back the handler's transaction: a deadlock or a serialization failure"


class SqlGuarded(Guarded[SqlHold]):
    """One run of a task: `async with guard(task) as hold:` or `with guard(task) as hold:`.

    A connection that breaks while the handler runs is not charged as a failed attempt.
    """

    def __init__(self, guard: SqlGuard, task: Task, step: Callable[[Connection], SqlHold]) -> None:
        """The hold begins with `step` when the block is entered."""
        super().__init__(guard, task)
        self._sql, self._step = guard, step

    async def _begin(self) -> SqlHold:
        return await self._sql.start(self._step)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._hold
        broken = _broken(hold, error)
        undone = not broken and _undone(hold, error) and hold is not None and await self._sql.undone(hold)
        await super().__aexit__(kind, error, trace)
        if broken or undone:
            raise self._unavailable() if broken else busy(UNDONE) from error

    def __enter__(self) -> SqlHold:
        self._hold = hold = self._sql.start_sync(self._step)
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold, self._hold = self._hold, None
        if hold is None:
            return
        if kind is None and not hold.lost:
            self._sql.finish_sync(hold)
            return
        broken = _broken(hold, error)
        undone = not broken and _undone(hold, error) and self._sql.undone_sync(hold)
        self._sql.abandon_sync(hold)
        if hold.lost:
            raise GuardLost(hold.lost) from error
        if broken or undone:
            raise self._unavailable() if broken else busy(UNDONE) from error

    def _unavailable(self) -> GuardUnavailable:
        return away(self._sql.where, "the connection was lost while the handler ran")


def _undone(hold: SqlHold | None, error: BaseException | None) -> bool:
    """Return whether the handler failed because of a deadlock or a serialization failure."""
    return (
        hold is not None
        and hold.connection is not None
        and isinstance(error, Exception)
        and not isinstance(error, (Retry, Bury))  # the handler has decided by itself
        and undone_under(error)
    )


def _broken(hold: SqlHold | None, error: BaseException | None) -> bool:
    """Return whether the handler failed because the guard's connection broke, and not a connection of its own."""
    if hold is None or hold.connection is None or not isinstance(error, Exception) or not lost_under(error):
        return False
    return bool(hold.connection.invalidated)
