"""Connections for one step or for a hold, in the caller's thread."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from delayq.errors import GuardBusy, GuardUnavailable
from delayq.guards.sql.errors import translated
from delayq.guards.sql.transaction import ENDED_EARLY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from delayq.guards.sql.engines import SqlHold
    from delayq.guards.sql.pools import Pools

T = TypeVar("T")
PERSIST_SECONDS: Final = 15.0
"""How long to retry the record of a finished run with effects elsewhere: a database restarts faster."""
PAUSE_SECONDS: Final = 0.5


class Plain:
    """Database access of synchronous code."""

    def __init__(self, pools: Pools) -> None:
        """Connect at the first step."""
        self._pools = pools

    def begin(self, step: Callable[[Connection], SqlHold]) -> SqlHold:
        """Take a connection; the hold keeps it while its transaction is open."""
        with translated(self._pools.url):
            pool, connection = self._pools.open()
            try:
                hold = step(connection)
                if hold.transaction is not None:
                    hold.pool, hold.connection = pool, connection
                    return hold
            except BaseException:
                self._pools.close(pool, connection)
                raise
            self._pools.close(pool, connection)
            return hold

    def finish(self, hold: SqlHold, step: Callable[[Connection], None]) -> None:
        """Run the step on the hold's connection, and return that to the pool."""
        with self._ending(hold), translated(self._pools.url):
            if hold.connection.closed:
                raise RuntimeError(ENDED_EARLY)
            step(hold.connection)

    def abandon(self, hold: SqlHold) -> None:
        """Roll back, and return the hold's connection to the pool."""
        with self._ending(hold):
            pass

    def once(self, step: Callable[[Connection], T]) -> T:
        """Run one step on a connection of the pool."""
        with translated(self._pools.url):
            pool, connection = self._pools.open()
            try:
                return step(connection)
            finally:
                self._pools.close(pool, connection)

    def persist(self, step: Callable[[Connection], T]) -> T:
        """Run one step; retry for 15 s while the database is unavailable."""
        deadline = time.monotonic() + PERSIST_SECONDS
        while True:
            try:
                return self.once(step)
            except (GuardBusy, GuardUnavailable):
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)

    @contextmanager
    def _ending(self, hold: SqlHold) -> Iterator[None]:
        try:
            yield
        finally:
            if hold.pool is not None:
                self._pools.close(hold.pool, hold.connection)
