"""An external Redis, at a URL or of spec.redis."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from delayq.connection import Address, AsyncConnection
from delayq.connection.address import secrets_dir
from delayq.errors import DelayQError
from delayq.local.plan import SPEC
from delayq.protocol.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.contract import DelayQueue
    from delayq.local.ending import Urgency


class External:
    """A Redis that the run neither starts nor stops."""

    exposed = ""  # it listens where its owner wants

    def __init__(self, url: str, queue: DelayQueue) -> None:
        """open() connects. The URL SPEC stands for spec.redis."""
        spec = queue.spec
        self.url = None if url == SPEC else url  # None: spec.redis
        self._address = Address.of(spec.redis, secrets_dir(), url=self.url)
        self._shards = Commands(queue.queue, prefix=spec.redis.key_prefix, shards=spec.shards).shards

    async def open(self) -> str:
        """Return a description; raise Unavailable at once if no server is reachable, for example for a wrong URL.

        In a Cluster, the run starts with the available nodes.
        """
        connection = AsyncConnection(self._address)
        asked = self._shards if connection.address.is_cluster else self._shards[:1]
        try:
            replies = await asyncio.gather(
                *(connection.send([("INFO",)], keys) for keys in asked), return_exceptions=True
            )
        finally:
            await connection.close()
        version, file = _facts(replies)
        return f"{version} at {connection.address.where} {file}{_waiting(replies)}"

    async def close(self, _urgency: Urgency) -> bool:
        """Do nothing."""
        return True


def _facts(replies: Sequence[Any]) -> tuple[str, str]:
    """Return version and persistence of the first server that answers; raise the error if none does."""
    answers = [each for each in replies if not isinstance(each, BaseException)]
    if not answers:
        raise replies[0]
    [info] = answers[0]
    text = info.decode() if isinstance(info, bytes) else ""  # an error without the right to INFO
    facts = dict(re.findall(r"^(\w+):(.*?)\r?$", text, re.MULTILINE))
    version = ".".join(facts.get("redis_version", "version unknown").split(".")[:2])
    on = {"1": "on", "0": "off"}.get(facts.get("aof_enabled", ""), "unknown")
    return version, f"(append-only file {on})"


def _waiting(replies: Sequence[Any]) -> str:
    """Format the unavailable shards and their errors; raise any other error."""
    away: dict[str, list[int]] = {}
    for shard, each in enumerate(replies):
        if isinstance(each, BaseException):
            if not isinstance(each, DelayQError):
                raise each
            away.setdefault(str(each), []).append(shard)
    return "".join(
        f"; shard {', '.join(map(str, shards))} of {len(replies)} waits: {why}"
        for why, shards in away.items()
    )
