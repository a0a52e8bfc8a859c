"""redlock: a task runs while a majority of several independent Redis servers names its owner.

The algorithm is Redlock, from Redis' documentation ("Distributed Locks with Redis"): set the same key to the same value
on all servers at once. The lock is held if a majority has set it before its time limit. Otherwise, and at the end of
the run, the key is deleted on all servers. After a third of the time limit, a majority must confirm a renewal. The keys
are those of redis-lock on shard 0, for tasks of any shard, so the queue's own Redis may be one of the servers.

A minority of the servers may be down, slow, or restarted empty. A server that lost a lock gets it back after the next
confirmed renewal. While a majority is unavailable, so is the guard, and holds are lost when their time limit expires.

Limits, beside those of every lock (see locking.py): the servers' clocks measure the time limit. A second run can begin
during the first one if the clocks of a majority jump ahead, or if a majority restarts empty within the time limit.
Persistence with fsync on every write prevents the latter, and so does a delay of each restart by the time limit. The
first run is interrupted at its next renewal.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from delayq.connection import Address, AsyncConnection
from delayq.contract import DelayQueue
from delayq.errors import DelayQError, GuardBusy, GuardUnavailable, InvalidDocument
from delayq.guards.locking import LockGuard, LockHold
from delayq.guards.quorum import Poll, majority
from delayq.protocol.commands import Call, Commands
from delayq.protocol.envelope import Task

log = logging.getLogger(__name__)
T = TypeVar("T")

FEWEST: Final = 3
FIELD: Final = "spec.guard.redlock.urlsSecretRef"
BUSY_MS: Final = (100, 1000)
"""Delay of a retry: several runs that try at once may each get some servers and none a majority."""


class Redlock(LockGuard):
    """One lock for each task, on a majority of independent servers."""

    name = "redlock"

    def __init__(
        self,
        addresses: Sequence[Address | str],
        *,
        queue: str,
        ttl_seconds: float = 30,
        prefix: str = "delayq",
    ) -> None:
        """Addresses may be URLs. InvalidDocument for fewer than three, or for a repeated one."""
        super().__init__(ttl_seconds)
        servers = checked([Address.from_url(each) if isinstance(each, str) else each for each in addresses])
        seconds = server_seconds(ttl_seconds)
        timed = [replace(each, timeout_seconds=min(each.timeout_seconds, seconds)) for each in servers]
        self._servers = [AsyncConnection(each) for each in timed]
        self._commands = Commands(queue, prefix=prefix)
        self.away: list[str] = []  # host:port of the servers that were unavailable at the last check

    @classmethod
    def of(cls, queue: DelayQueue, address: Address, *, secrets_dir: Path, apart: bool) -> Redlock:
        """Return the guard of a document with spec.guard.redlock; InvalidDocument names what is wrong with its URLs."""
        del address, apart  # Redlock has its own servers, and no transaction
        spec: Any = queue.spec  # guards.build() has found spec.guard.redlock in it
        secret = spec.guard.redlock.urls_secret_ref
        path = secret.reference.file(secrets_dir)
        try:
            servers = checked(parsed(path.read_bytes()))
        except OSError:
            raise InvalidDocument(
                f"{FIELD}: Secret {secret.name}: expected its key {secret.key} as the file {path}, found none"
            ) from None
        except InvalidDocument as error:
            raise InvalidDocument(
                f"{FIELD}: Secret {secret.name}, key {secret.key}: {error}"
            ) from None  # its cause may quote a password
        if len(servers) % 2 == 0:
            fields = {"servers": len(servers), "as_good_as": len(servers) - 1}
            log.warning("redlock_servers_even", extra={"fields": fields})
        ttl_seconds = spec.guard.redlock.ttl_seconds
        return cls(servers, queue=queue.queue, ttl_seconds=ttl_seconds, prefix=spec.redis.key_prefix)

    @property
    def where(self) -> str:
        """host:port of each server."""
        return ", ".join(server.address.where for server in self._servers)

    async def check(self) -> None:
        """Acquire and release a lock of no task on each server. Log the unavailable servers when they change."""
        owner = f"check:{secrets.token_hex(8)}"
        poll = await self._ask(self._commands.lock("", owner, self._ttl_ms)).whole()
        self._ask(self._commands.unlock("", owner))
        answers = zip(self._servers, poll.answers, strict=True)
        away = [server.address.where for server, answer in answers if isinstance(answer, DelayQError)]
        if away != self.away:
            level = logging.WARNING if away else logging.INFO
            log.log(
                level, "redlock_servers_unavailable", extra={"fields": {"away": away, "of": len(poll.tasks)}}
            )
            self.away = away
        if poll.failed:
            raise self._unavailable(poll)

    async def _acquire(self, task: Task, owner: str) -> None:
        poll = await self._ask(self._commands.lock(task.id, owner, self._ttl_ms), _free).decided()
        if poll.granted:
            return
        if poll.failed and not poll.denied:
            raise self._unavailable(poll)
        delay_ms = random.randint(*BUSY_MS)  # noqa: S311 -- jitter
        raise GuardBusy(f"another run of task {task.id} holds its lock", delay_ms=delay_ms)

    async def _renew(self, hold: LockHold) -> bool | None:
        poll = await self._ask(self._commands.renew(hold.task.id, hold.owner, self._ttl_ms)).decided()
        if poll.granted:
            self._background.start(self._heal(poll, hold))
        return poll.verdict

    async def _heal(self, poll: Poll[bool], hold: LockHold) -> None:
        """Set the lock on servers that do not have it: they were unavailable or restarted, while a majority held it.

        Otherwise a rolling restart of the servers would end a long run. The replies are ignored: only a later renewal
        proves that the lock was held throughout.
        """
        lock: Call[Any] = self._commands.lock(hold.task.id, hold.owner, self._ttl_ms)
        for server, vote in zip(self._servers, (await poll.whole()).votes, strict=True):
            if vote is False and not (hold.over or hold.lost):
                self._background.start(_answer(server, lock))

    async def _release(self, task: Task, owner: str) -> bool | None:
        return (await self._ask(self._commands.unlock(task.id, owner)).decided()).verdict

    def _ask(self, call: Call[T], yes: Callable[[T], bool] = bool) -> Poll[T]:
        """Send a call to each server, which has a timeout of its own; the calls run even if nothing awaits them."""
        return Poll([self._background.start(_answer(server, call)) for server in self._servers], yes)

    def _unavailable(self, poll: Poll[int] | Poll[bool]) -> GuardUnavailable:
        count = len(poll.tasks)
        verb = "does" if len(poll.errors) == 1 else "do"
        why = f"{majority(count)} of {count} servers must serve, {len(poll.errors)} {verb} not: {poll.errors[0]}"
        return GuardUnavailable(self.where, why)

    async def _disconnect(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))


async def _answer(server: AsyncConnection, call: Call[T]) -> T | DelayQError:
    try:
        return await server.one(call)
    except DelayQError as error:
        return error


def _free(others_ms: int) -> bool:
    return others_ms == 0


def server_seconds(ttl_seconds: float) -> float:
    """Return the timeout of one server: short compared with the time limit, long enough for a busy network.

    30 s → 1 s; 2 s → 0.4 s. Only a slow majority delays a task by this time.
    """
    return min(ttl_seconds / 5, 1.0)


def parsed(content: bytes) -> list[Address]:
    """Parse one URL per line, without empty lines and lines that begin with #. Errors quote no part of a URL."""
    servers = []
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        url = line.strip()
        if not url or url.startswith("#"):
            continue
        try:
            servers.append(Address.from_url(url))
        except InvalidDocument as error:
            raise InvalidDocument(f"line {number}: {error}") from None
    return servers


def checked(servers: list[Address]) -> list[Address]:
    """Return the servers. InvalidDocument unless they are three or more, standalone, and independent.

    Two databases of one server are not independent: they fail together.
    """
    watched = [server.where for server in servers if server.kind != "standalone"]
    if watched:
        raise InvalidDocument(
            f"expected standalone Redis servers, got {', '.join(watched)}: a failover can lose locks"
        )
    places = [server.where for server in servers]
    twice = sorted({place for place in places if places.count(place) > 1})
    if twice:
        raise InvalidDocument(f"expected independent Redis servers, got {', '.join(twice)} more than once")
    if len(servers) < FEWEST:
        raise InvalidDocument(
            f"expected URLs of {FEWEST} or more independent Redis servers, one a line, got {len(servers)}"
        )
    return servers
