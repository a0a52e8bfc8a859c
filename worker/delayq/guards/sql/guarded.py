"""The block around one run of a task under a SQL guard, for coroutine and plain functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.errors import Bury, GuardLost, GuardUnavailable, Retry
from delayq.guards.base import Guarded
from delayq.guards.sql.engines import SqlBatchHold, SqlHold
from delayq.guards.sql.errors import away, busy, lost_under, undone_under

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from delayq.guards.sql.guard import SqlGuard
    from delayq.protocol.envelope import Task

UNDONE: Final = "the database rolled back the handler's transaction: a deadlock or a serialization failure"


class SqlGuarded(Guarded[SqlHold]):
    """One run of a task: `async with guard(task) as hold:` or `with guard(task) as hold:`.

    A connection that breaks while the handler runs is not charged as a failed attempt.
    """

    def __init__(self, guard: SqlGuard, task: Task) -> None:
        """The hold begins when the block is entered."""
        super().__init__(guard, task)
        self._sql = guard

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
        self._hold = hold = self._sql.begin_sync(self._task)
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


class SqlGuardedBatch(SqlGuarded):
    """One call of several tasks in one transaction; the hold is a SqlBatchHold."""

    def __init__(self, guard: SqlGuard, tasks: Sequence[Task]) -> None:
        """`tasks` is not empty."""
        super().__init__(guard, tasks[0])
        self._tasks = tasks

    async def _begin(self) -> SqlBatchHold:
        return await self._sql.begin_all(self._tasks)

    def __enter__(self) -> SqlHold:
        self._hold = hold = self._sql.begin_all_sync(self._tasks)
        return hold


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
