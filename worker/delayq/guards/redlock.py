"""redlock: a task runs while a majority of several independent Redis servers names its owner.

The algorithm is the one that Redis' documentation calls Redlock ("Distributed Locks with Redis"): set the same key to
the same value on all servers at once; it is held if a majority has set it and some of its life is left; else, and at
the end, it is deleted everywhere. Renewed at a third of its life, by a majority again. The keys are those of redis-lock
on shard 0, whichever shard the task is on, so one of the queue's own Redis servers may be among the servers.

A minority of the servers may be down, slow, or restarted empty without effect, and a server that lost a lock gets it
back when the majority has confirmed the next renewal. With a majority away the guard is unavailable, and holds are lost
when their time has run out.

Limits, beside those of every lock (see locking.py): the life of a lock is measured by the servers' clocks.
A majority of them that step ahead, or that restart empty within one life of the lock (persistence with fsync on every
write, or a restart that is delayed by a lock's life, rules that out), let a second run begin while the first goes on;
the first is interrupted at its next renewal.
"""

from __future__ import annotations

import logging
import random
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delayq.connection import Address
from delayq.contract.files import secret_path
from delayq.errors import DelayQError, GuardBusy, GuardUnavailable, InvalidDocument
from delayq.guards.locking import LockGuard
from delayq.guards.quorum import Servers, majority
from delayq.protocol.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.guards.quorum import Poll
    from delayq.guards.renewal import LockHold
    from delayq.protocol.envelope import Task

log = logging.getLogger(__name__)

FEWEST: Final = 3
FIELD: Final = "spec.guard.redlock.urlsSecretRef"
BUSY_MS: Final = (100, 1000)
"""Delay of a retry: several runs that try at once may each get some servers and none a majority."""


class Redlock(LockGuard):
    """One lock for each task, on the majority of servers that share nothing."""

    name = "redlock"

    def __init__(
        self,
        addresses: Sequence[Address | str],
        *,
        queue: str,
        ttl_seconds: float = 30,
        prefix: str = "delayq",
    ) -> None:
        """InvalidDocument when there are fewer than three, or one twice. Addresses may be URLs."""
        super().__init__(ttl_seconds)
        servers = checked([Address.from_url(each) if isinstance(each, str) else each for each in addresses])
        seconds = server_seconds(ttl_seconds)
        timed = [replace(each, timeout_seconds=min(each.timeout_seconds, seconds)) for each in servers]
        self._servers = Servers(timed, self._background)
        self._commands = Commands(queue, prefix=prefix)
        self.away: list[str] = []  # host:port of the servers that were unavailable at the last check

    @classmethod
    def of(cls, queue: DelayQueue, address: Address, *, secrets_dir: Path, apart: bool) -> Redlock:
        """Return the guard of a document with spec.guard.redlock; InvalidDocument names what is wrong with its URLs."""
        del address, apart  # it has servers of its own, and no transaction to be apart from
        spec = queue.spec
        if spec.guard is None or spec.guard.redlock is None:
            raise ValueError("spec.guard.redlock: expected it to be there")
        secret = spec.guard.redlock.urls_secret_ref
        path = secret_path(secrets_dir, secret.name, secret.key)
        try:
            servers = checked(parsed(path.read_bytes()))
        except OSError:
            raise InvalidDocument(
                f"{FIELD}: Secret {secret.name}: expected its key {secret.key} as the file {path}, found none"
            ) from None
        except InvalidDocument as error:
            raise InvalidDocument(
                f"{FIELD}: Secret {secret.name}, key {secret.key}: {error}"
            ) from None  # what it came from may quote a password
        if len(servers) % 2 == 0:
            fields = {"servers": len(servers), "as_good_as": len(servers) - 1}
            log.warning("redlock_servers_even", extra={"fields": fields})
        ttl_seconds = spec.guard.redlock.ttl_seconds
        return cls(servers, queue=queue.queue, ttl_seconds=ttl_seconds, prefix=spec.redis.key_prefix)

    @property
    def where(self) -> str:
        """host:port of each server."""
        return ", ".join(address.where for address in self._servers.addresses)

    async def check(self) -> None:
        """Take and give back the lock of no task, on each server; logs which of them are away when that changes."""
        owner = f"check:{secrets.token_hex(8)}"
        poll = await self._servers.ask(self._commands.lock("", owner, self._ttl_ms)).whole()
        self._servers.ask(self._commands.unlock("", owner))
        answers = zip(self._servers.addresses, poll.answers, strict=True)
        away = [address.where for address, answer in answers if isinstance(answer, DelayQError)]
        if away != self.away:
            level = logging.WARNING if away else logging.INFO
            log.log(
                level, "redlock_servers_unavailable", extra={"fields": {"away": away, "of": len(poll.tasks)}}
            )
            self.away = away
        if poll.failed:
            raise self._unavailable(poll)

    async def _acquire(self, task: Task, owner: str) -> None:
        poll = await self._servers.ask(self._commands.lock(task.id, owner, self._ttl_ms), _free).decided()
        if poll.granted:
            return
        if poll.failed and not poll.denied:
            raise self._unavailable(poll)
        delay_ms = random.randint(*BUSY_MS)  # noqa: S311 -- spreads those who wait
        raise GuardBusy(f"another run of task {task.id} holds its lock", delay_ms=delay_ms)

    async def _renew(self, hold: LockHold) -> bool | None:
        poll = await self._servers.ask(self._commands.renew(hold.task.id, hold.owner, self._ttl_ms)).decided()
        if poll.granted:
            self._background.start(self._heal(poll, hold))
        return poll.verdict

    async def _heal(self, poll: Poll[bool], hold: LockHold) -> None:
        """Set the lock where it is missing: at servers that were away, or restarted, while a majority held it.

        Else a long run would not survive that its servers are restarted one after the other. The answers count for
        nothing now: only a later renewal proves that the lock was there all the time.
        """
        votes = (await poll.whole()).votes
        for at, vote in enumerate(votes):
            if vote is False and not (hold.over or hold.lost):
                self._servers.tell(at, self._commands.lock(hold.task.id, hold.owner, self._ttl_ms))

    async def _release(self, task: Task, owner: str) -> bool | None:
        return (await self._servers.ask(self._commands.unlock(task.id, owner)).decided()).verdict

    def _unavailable(self, poll: Poll[int] | Poll[bool]) -> GuardUnavailable:
        count = len(poll.tasks)
        why = f"{majority(count)} of {count} servers must serve, {len(poll.errors)} do not: {poll.errors[0]}"
        return GuardUnavailable(self.where, why)

    async def _disconnect(self) -> None:
        await self._servers.close()


def _free(others_ms: int) -> bool:
    return others_ms == 0


def server_seconds(ttl_seconds: float) -> float:
    """Return how long one server may take to answer: small against a lock's life, long enough for a busy network.

    30 s → 1 s; 2 s → 0.4 s. Only a slow majority delays a task by this time.
    """
    return min(ttl_seconds / 5, 1.0)


def parsed(content: bytes) -> list[Address]:
    """Read one URL a line; empty lines and those that begin with # count for nothing. Errors quote nothing."""
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
    """Return servers that can make a majority; two databases of one server fall together, and count once."""
    watched = [server.where for server in servers if server.kind != "standalone"]
    if watched:
        raise InvalidDocument(
            f"expected single Redis servers, got {', '.join(watched)}: a replica that takes over has forgotten locks"
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
