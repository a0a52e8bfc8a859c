"""The Redis of a run: embedded, or an external one at a URL."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq.connection import Address, AsyncConnection
from delayq.connection.address import secrets_dir
from delayq.errors import DelayQError
from delayq.local.embedded import Embedded
from delayq.local.ending import end
from delayq.local.panel import embedded_line
from delayq.protocol.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.contract import DelayQueue
    from delayq.local.datadir import DataDir
    from delayq.local.keeper import Keeper
    from delayq.local.urgency import Urgency

SPEC = "spec"  # in place of a URL
STOP_SECONDS = 30.0  # for Redis to write what it has not yet written


class External:
    """A Redis that runs anyway."""

    def __init__(self, url: str, queue: DelayQueue) -> None:
        """Connect in open(). SPEC stands for the document's own."""
        spec = queue.spec
        self.url = None if url == SPEC else url  # None: where spec.redis says
        self._address = Address.of(spec.redis, secrets_dir(), url=self.url)
        self._shards = Commands(queue.queue, prefix=spec.redis.key_prefix, shards=spec.shards).shards

    async def open(self) -> str:
        """Unavailable at once if no server can be reached: a wrong URL must not look like a queue that runs.

        A node of a Cluster that is away keeps only its shards waiting.
        """
        connection = AsyncConnection(self._address)
        asked = self._shards if connection.address.apart else self._shards[:1]
        try:
            told = await asyncio.gather(
                *(connection.send([("INFO",)], keys) for keys in asked), return_exceptions=True
            )
        finally:
            await connection.close()
        version, file = _facts(told)
        return f"{version} at {connection.address.where} {file}{_waiting(told)}"

    async def close(self, _urgency: Urgency) -> bool:
        """Leave it alone."""
        return True


class Own:
    """One that lives and ends with us."""

    def __init__(self, directory: DataDir) -> None:
        """NoServer when there is none."""
        self._directory, self._embedded = directory, Embedded(directory)

    @property
    def url(self) -> str:
        """Where it is, with the password."""
        return self._embedded.url

    @property
    def keeper(self) -> Keeper:
        """What keeps it running."""
        return self._embedded.keeper

    async def open(self) -> str:
        """Start it and let the other commands find it."""
        await self._embedded.start()
        self._directory.publish(self.url)
        return embedded_line(self._embedded.server, shown(self._directory.path))

    async def close(self, urgency: Urgency) -> bool:
        """Stop it. Its last act is to write its file, so hurrying loses nothing."""
        return await end([self.keeper], STOP_SECONDS, urgency)


def shown(path: Path) -> Path:
    """Return the path as seen from here, if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else Path(os.path.normpath(path))


def _facts(told: Sequence[Any]) -> tuple[str, str]:
    """Return the version of the first that answers, and whether it keeps a file; raise why none does."""
    answers = [each for each in told if not isinstance(each, BaseException)]
    if not answers:
        raise told[0]
    [info] = answers[0]
    text = info.decode() if isinstance(info, bytes) else ""  # an error where the user may not ask
    facts = dict(re.findall(r"^(\w+):(.*?)\r?$", text, re.MULTILINE))
    version = ".".join(facts.get("redis_version", "version unknown").split(".")[:2])
    on = {"1": "on", "0": "off"}.get(facts.get("aof_enabled", ""), "unknown")
    return version, f"(append-only file {on})"


def _waiting(told: Sequence[Any]) -> str:
    """Say which shards are not served yet, and why; anything but an outage is raised."""
    away: dict[str, list[int]] = {}
    for shard, each in enumerate(told):
        if isinstance(each, BaseException):
            if not isinstance(each, DelayQError):
                raise each
            away.setdefault(str(each), []).append(shard)
    return "".join(
        f"; shard {', '.join(map(str, shards))} of {len(told)} waits: {why}" for why, shards in away.items()
    )
