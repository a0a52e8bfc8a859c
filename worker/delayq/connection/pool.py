"""Blocking connections to one server: at most `max_connections`, the most recently used first.

A connection that was idle for longer than healthCheckSeconds is checked with PING before it is used. A firewall may
have dropped it; then the result of a call would be unknown.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import BoundedSemaphore
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from delayq.connection.deadline import CHECK_SECONDS
from delayq.connection.round_trip import packed, shown, translated
from delayq.connection.sentinels import NOT_A_MASTER, ROLE, is_master
from delayq.errors import Unavailable

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
        self._connection: Connection = address.blocking_connection()
        self._used_at = 0.0

    @property
    def connected(self) -> bool:
        """Whether it is open."""
        return bool(self._connection.is_connected)

    def ready(self, deadline: Deadline) -> None:
        """Connect, unless it is open and works; Unavailable otherwise."""
        try:
            if self.connected and not self._alive(deadline):
                self.drop()
            if not self.connected:
                self._connect(deadline)
        except (RedisError, OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            self.drop()
            raise translated(error, self.address.where, "connect") from shown(error)

    def _connect(self, deadline: Deadline) -> None:
        self._connection.socket_connect_timeout = self._connection.socket_timeout = deadline.left
        self._connection.connect()
        self._connection.socket_timeout = self.address.timeout_seconds
        self._connection.update_current_socket_timeout(self.address.timeout_seconds)
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
        try:
            if self._connection.can_read(
                timeout=0
            ):  # unsolicited data: it is closed, or replies are out of order
                return False
            if time.monotonic() - self._used_at < self.address.health_check_seconds:
                return True
            self._connection.send_packed_command([packed([("PING",)])], check_health=False)
            seconds = min(CHECK_SECONDS, deadline.left)
            return bool(self._connection.read_response(disable_decoding=True, timeout=seconds) == b"PONG")
        except (RedisError, OSError):
            return False

    def write(self, commands: Sequence[Command], deadline: Deadline) -> None:
        """Send commands; the caller reads the replies."""
        try:
            self._connection.update_current_socket_timeout(deadline.left)
            self._connection.send_packed_command([packed(commands)], check_health=False)
        except (RedisError, OSError) as error:
            self.drop()
            raise translated(error, self.address.where, "commands") from error
        except BaseException:
            self.drop()
            raise

    def read(self, count: int, deadline: Deadline) -> list[object]:
        """Return this number of replies, with error replies as values."""
        try:
            replies = [self._reply(deadline) for _ in range(count)]
        except (RedisError, OSError) as error:
            self.drop()
            raise translated(error, self.address.where, "commands") from error
        except BaseException:
            self.drop()
            raise
        self._used_at = time.monotonic()
        return replies

    def _reply(self, deadline: Deadline) -> object:
        try:
            reply: object = self._connection.read_response(disable_decoding=True, timeout=deadline.left)
        except RedisError as error:
            if not self._connection.is_connected:
                raise
            return error
        return reply

    def readable(self, seconds: float) -> bool:
        """Wait for a reply to arrive. Also True when the connection was closed."""
        try:
            return bool(self._connection.can_read(timeout=seconds))
        except (RedisError, OSError):
            return True  # the next read reports it

    def drop(self) -> None:
        """Disconnect. ready() connects again."""
        self._connection.disconnect()


class Pool:
    """The connections to one server, shared by all threads."""

    def __init__(self, address: Address, *, checked: bool = False) -> None:
        """Connect on first use. `checked`: see Wire."""
        self.address, self._checked = address, checked
        self._permits = BoundedSemaphore(self.address.max_connections)
        self._idle: list[Wire] = []
        self._in_use: set[Wire] = set()
        self._reusable: set[Wire] = set()  # of those, the ones to keep afterwards

    def take(self, deadline: Deadline, *, waiting: bool = False) -> Wire | None:
        """Return a connection that is ready; None if none is free, or not in time. Unavailable without Redis."""
        if not (
            self._permits.acquire(timeout=deadline.left) if waiting else self._permits.acquire(blocking=False)
        ):
            return None
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = Wire(self.address, checked=self._checked)
        self._in_use.add(wire)
        self._reusable.add(wire)
        try:
            wire.ready(deadline)
        except BaseException:
            self.give(wire)
            raise
        return wire

    def wait(self, deadline: Deadline) -> Wire:
        """Return a connection that is ready; wait for a free one until the deadline. Unavailable otherwise."""
        wire = self.take(deadline, waiting=True)
        if wire is None:
            free = f"no free connection within {deadline.seconds:g} s"
            why = f"{free}; use fewer threads, or raise spec.redis.connection.maxConnections"
            raise Unavailable(self.address.where, why)
        return wire

    def more(self, deadline: Deadline) -> Wire:
        """Return a connection that is ready, without waiting for a free one; it may exceed max_connections by one.

        For redirected calls: the caller may hold connections already, and must not wait for another.
        """
        wire = self.take(deadline)
        if wire is None:
            wire = Wire(self.address, checked=self._checked)
            wire.ready(deadline)
        return wire

    def give(self, wire: Wire) -> None:
        """Return a connection to the pool."""
        if wire not in self._in_use:
            wire.drop()
            return
        if wire not in self._reusable:
            wire.drop()
        self._in_use.discard(wire)
        self._reusable.discard(wire)
        self._idle.append(wire)
        self._permits.release()

    def drop(self) -> None:
        """Close idle connections now, and those in use when they are returned: the server is no longer the master."""
        self._reusable.clear()
        with suppress(IndexError):
            while True:
                self._idle.pop().drop()
