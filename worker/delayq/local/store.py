"""A Redis that runs anyway, at a URL or where the document says."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from delayq.connection import Address, AsyncConnection
from delayq.connection.address import secrets_dir
from delayq.errors import DelayQError
from delayq.protocol.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.contract import DelayQueue
    from delayq.local.ending import Urgency

SPEC = "spec"  # in place of a URL


class External:
    """It is used, and left alone."""

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
