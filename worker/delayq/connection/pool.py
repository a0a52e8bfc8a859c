"""Blocking connections to one server: at most `max_connections`, and the one used last is used next.

A connection that was idle for longer than healthCheckSeconds is asked whether it is still there before it is used:
a firewall that has dropped the connection would swallow a call, with an unknown result.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import BoundedSemaphore
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from delayq.connection.deadline import CHECK_SECONDS
from delayq.connection.round_trip import packed, shown, translated
from delayq.connection.sentinels import ROLE, is_master
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis import Connection

    from delayq.connection.address import Address
    from delayq.connection.deadline import Deadline
    from delayq.connection.round_trip import Command


class Wire:
    """One connection, for one holder. After any failure it is closed: it may hold half a reply."""

    def __init__(self, address: Address, *, checked: bool = False) -> None:
        """Connect in ready(). `checked`: whether the server has to say of itself that it is a master."""
        self.address, self._checked = address, checked
        self._connection: Connection = address.blocking_connection()
        self._used_at = 0.0

    @property
    def connected(self) -> bool:
        """Whether it was not dropped."""
        return bool(self._connection.is_connected)

    def ready(self, deadline: Deadline) -> None:
        """Connect, unless it is connected and alive. Unavailable otherwise."""
        try:
            if self.connected and not self._alive(deadline):
                self.drop()
            if not self.connected:
                self._connect(deadline)
        except (RedisError, OSError, UnicodeError) as error:  # the latter: of a host that is none
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
            raise Unavailable(self.address.where, "it is no master, says its ROLE", outage="no_master")

    def _alive(self, deadline: Deadline) -> bool:
        try:
            if self._connection.can_read(timeout=0):  # unsolicited data: it is closed, or out of step
                return False
            if time.monotonic() - self._used_at < self.address.health_check_seconds:
                return True
            self._connection.send_packed_command([packed([("PING",)])], check_health=False)
            seconds = min(CHECK_SECONDS, deadline.left)
            return bool(self._connection.read_response(disable_decoding=True, timeout=seconds) == b"PONG")
        except (RedisError, OSError):
            return False

    def write(self, commands: Sequence[Command], deadline: Deadline) -> None:
        """Send; the holder reads the replies."""
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
        """Return as many replies, an error reply as a value."""
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
        """Wait that long for a reply to begin; that the connection was closed counts, too."""
        try:
            return bool(self._connection.can_read(timeout=seconds))
        except (RedisError, OSError):
            return True  # the next read reports it

    def drop(self) -> None:
        """Disconnect; it connects again when it is needed."""
        self._connection.disconnect()


class Pool:
    """The connections to one server, shared by all threads."""

    def __init__(self, address: Address, *, checked: bool = False) -> None:
        """Connect on first use; `checked`: see Wire."""
        self.address, self._checked = address, checked
        self._places = BoundedSemaphore(self.address.max_connections)
        self._idle: list[Wire] = []
        self._taken: set[Wire] = set()
        self._fresh: set[Wire] = set()  # of those, what is to be kept afterwards

    def take(self, deadline: Deadline, *, waiting: bool = False) -> Wire | None:
        """Return a connection that is ready; None without a free one, or one in time. Unavailable without Redis."""
        if not (
            self._places.acquire(timeout=deadline.left) if waiting else self._places.acquire(blocking=False)
        ):
            return None
        try:
            line = self._idle.pop()
        except IndexError:
            line = Wire(self.address, checked=self._checked)
        self._taken.add(line)
        self._fresh.add(line)
        try:
            line.ready(deadline)
        except BaseException:
            self.give(line)
            raise
        return line

    def wait(self, deadline: Deadline) -> Wire:
        """Return a connection that is ready, waiting as long as for an answer."""
        line = self.take(deadline, waiting=True)
        if line is None:
            raise Unavailable(self.address.where, f"no free connection within {deadline.seconds:g} s")
        return line

    def more(self, deadline: Deadline) -> Wire:
        """Return a connection that is ready at once, one beyond the bound if need be.

        For redirected calls: their caller may hold connections already, and must not wait for another.
        """
        line = self.take(deadline)
        if line is None:
            line = Wire(self.address, checked=self._checked)
            line.ready(deadline)
        return line

    def give(self, line: Wire) -> None:
        """Take a connection back."""
        if line not in self._taken:
            line.drop()
            return
        if line not in self._fresh:
            line.drop()
        self._taken.discard(line)
        self._fresh.discard(line)
        self._idle.append(line)
        self._places.release()

    def drop(self) -> None:
        """Close what is idle now, and what is in use once it is given back: this is not the server it was."""
        self._fresh.clear()
        with suppress(IndexError):
            while True:
                self._idle.pop().drop()
