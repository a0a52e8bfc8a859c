"""Blocking connections to one server: at most `max_connections`, the most recently used first.

A connection that was idle for longer than health_check_seconds is checked with PING before it is used. A firewall may
have dropped it; then the result of a call would be unknown.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from redis.exceptions import RedisError

from delayq.connection.deadline import CHECK_SECONDS
from delayq.connection.interrupts import interruption
from delayq.connection.permits import Permit, Permits
from delayq.connection.round_trip import packed, shown, translated
from delayq.connection.sentinels import NOT_A_MASTER, ROLE, is_master
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis import Connection

    from delayq.connection.address import Address
    from delayq.connection.deadline import Deadline
    from delayq.connection.round_trip import Command


class Wire:
    """One connection, used by one ticket at a time. It is closed after a failure, as it may contain half a reply."""

    def __init__(self, address: Address, *, checked: bool = False) -> None:
        """Connect in ready(). `checked`: whether to check by ROLE that the server is a master."""
        self.address, self._checked = address, checked
        self.since: object = None  # see Pool.drop
        self._connection: Connection = address.blocking_connection()
        self._owed = 0  # replies, of the login too: until they are read, no other call may use it
        self._used_at = 0.0

    @property
    def connected(self) -> bool:
        """Whether it is open."""
        return bool(self._connection.is_connected)

    def ready(self, deadline: Deadline) -> None:
        """Connect, unless it is open and works; Unavailable otherwise."""
        if self.connected and (self._owed or not self._alive(deadline)):
            self.drop()
        if not self.connected:
            self._connect(deadline)
            self._check(deadline)

    def _connect(self, deadline: Deadline) -> None:
        self._owed = 1  # the login
        self._connection.socket_connect_timeout = self._connection.socket_timeout = deadline.left
        try:
            self._connection.connect()
        except BaseException as error:  # noqa: BLE001 -- raised again
            self._fail(error, "connect")
        self._owed = 0
        self._connection.socket_timeout = self.address.timeout_seconds
        self._connection.update_current_socket_timeout(self.address.timeout_seconds)

    def _check(self, deadline: Deadline) -> None:
        if not self._checked:
            return
        self.write([ROLE], deadline)
        [reply] = self.read(1, deadline)
        if isinstance(reply, RedisError):
            self.drop()
            raise translated(reply, self.address.where, "ROLE")
        if not is_master(reply):
            self.drop()
            raise Unavailable(self.address.where, NOT_A_MASTER, outage="no_master")

    def _alive(self, deadline: Deadline) -> bool:
        if self.readable(0):  # unsolicited data: it is closed, or replies are out of order
            return False
        if time.monotonic() - self._used_at < self.address.health_check_seconds:
            return True
        soon = deadline.within(CHECK_SECONDS)
        try:
            self.write([("PING",)], soon)
            return self.read(1, soon) == [b"PONG"]
        except DelayQError:
            return False

    def write(self, commands: Sequence[Command], deadline: Deadline) -> None:
        """Send commands; the caller reads the replies."""
        self._owed += len(commands)
        try:
            self._connection.update_current_socket_timeout(deadline.left)
            self._connection.send_packed_command([packed(commands)], check_health=False)
        except BaseException as error:  # noqa: BLE001 -- raised again
            self._fail(error, "commands")

    def read(self, count: int, deadline: Deadline) -> list[object]:
        """Return this number of replies, with error replies as values."""
        try:
            replies = [self._reply(deadline) for _ in range(count)]
        except BaseException as error:  # noqa: BLE001 -- raised again
            self._fail(error, "commands")
        self._used_at = time.monotonic()
        return replies

    def _reply(self, deadline: Deadline) -> object:
        try:
            reply: object = self._connection.read_response(disable_decoding=True, timeout=deadline.left)
        except RedisError as error:
            if not self._connection.is_connected:
                raise
            reply = error
        self._owed -= 1
        return reply

    def _fail(self, error: BaseException, verb: str) -> NoReturn:
        """Disconnect, and raise the error: as ours, unless it is the program's."""
        self.drop()
        programs = interruption(error)
        if programs is not None:
            raise programs
        assert isinstance(error, Exception)  # noqa: S101 -- see interruption()
        raise translated(error, self.address.where, verb) from shown(error)

    def readable(self, seconds: float) -> bool:
        """Wait for a reply to arrive. Also True when the connection was closed."""
        try:
            return bool(self._connection.can_read(timeout=seconds))
        except (RedisError, OSError) as error:
            if programs := interruption(error):
                raise programs from None
            return True  # the next read reports it

    def drop(self) -> None:
        """Disconnect. ready() connects again."""
        self._connection.disconnect()


class Loan(NamedTuple):
    """A connection in use."""

    wire: Wire
    permit: Permit | None = None  # None: it exceeds max_connections, and is not kept


class Pool:
    """The connections to one server, shared by all threads.

    A signal handler may raise, or make a call itself, between any two instructions: no lock is held, and a connection
    that is neither idle nor referenced by a ticket is gone, with its permit.
    """

    def __init__(self, address: Address, *, checked: bool = False) -> None:
        """Connect on first use. `checked`: see Wire."""
        self.address, self._checked = address, checked
        self._permits = Permits(self.address.max_connections)
        self._idle: list[Wire] = []
        self._since = object()  # connections in use from before are closed when they are returned

    def take(self, deadline: Deadline, *, waiting: bool = False) -> Loan | None:
        """Return a connection that is ready; None if none is free, or not in time. Unavailable without Redis."""
        permit = self._permits.take(deadline.left if waiting else 0.0)
        if permit is None:
            return None
        wire: Wire | None = None
        try:
            wire = self._idle_or_new()
            wire.ready(deadline)
        except BaseException:
            self._return(wire, permit)
            raise
        return Loan(wire, permit)

    def _idle_or_new(self) -> Wire:
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = Wire(self.address, checked=self._checked)
        wire.since = self._since
        return wire

    def wait(self, deadline: Deadline) -> Loan:
        """Return a connection that is ready; wait for a free one until the deadline. Unavailable otherwise."""
        loan = self.take(deadline, waiting=True)
        if loan is None:
            free = f"no free connection within {deadline.seconds:g} s"
            why = f"{free}; use fewer threads, or open the SyncClient with a larger max_connections"
            raise Unavailable(self.address.where, why)
        return loan

    def more(self, deadline: Deadline) -> Loan:
        """Return a connection that is ready, without waiting for a free one; it may exceed max_connections by one.

        For redirected calls, and those of signal handlers: the thread may hold connections already, and must not wait
        for another.
        """
        loan = self.take(deadline)
        if loan is None:
            loan = Loan(Wire(self.address, checked=self._checked))
            loan.wire.ready(deadline)
        return loan

    def give(self, loan: Loan) -> None:
        """Return a connection to the pool, once."""
        if loan.permit is None or loan.wire.since is not self._since:
            loan.wire.drop()
        if loan.permit is not None:
            self._return(loan.wire, loan.permit)

    def _return(self, wire: Wire | None, permit: Permit) -> None:
        if wire is not None:
            self._idle.append(wire)
        self._permits.give(permit)

    def drop(self) -> None:
        """Close idle connections now, and those in use when they are returned: the server is no longer the master."""
        self._since = object()
        with suppress(IndexError):
            while True:
                self._idle.pop().drop()
