"""`async with guard(task) as hold:` and `with guard(task) as hold:` around one run of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.errors import GuardLost, GuardUnavailable
from delayq.guards.base import Guarded
from delayq.guards.sql.errors import lost_under

if TYPE_CHECKING:
    from types import TracebackType

    from delayq.guards.sql.guard import SqlGuard
    from delayq.guards.sql.hold import SqlHold
    from delayq.message import Task


class SqlGuarded(Guarded["SqlHold"]):
    """One run under a SQL guard. A connection that broke under the handler is no failure of the handler's."""

    def __init__(self, guard: SqlGuard, task: Task) -> None:
        """Nothing begins before the block is entered."""
        super().__init__(guard, task)
        self._sql = guard

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        broken = _broken(self._hold, error)
        await super().__aexit__(kind, error, trace)
        if broken:
            raise self._unavailable() from error

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
        self._sql.abandon_sync(hold)
        if hold.lost:
            raise GuardLost(hold.lost) from error
        if broken:
            raise self._unavailable() from error

    def _unavailable(self) -> GuardUnavailable:
        return GuardUnavailable(self._sql.where, "the connection was lost while the handler ran")


def _broken(hold: SqlHold | None, error: BaseException | None) -> bool:
    """Tell whether the handler failed because the guard's own connection broke, and not another one of its own."""
    if hold is None or hold.connection is None or not isinstance(error, Exception) or not lost_under(error):
        return False
    return bool(hold.connection.invalidated)
