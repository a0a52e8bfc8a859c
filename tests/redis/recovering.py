"""Recoveries on a shard whose clock stands still, and a check that tests can look into and hold back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from delayq.connection import Address
from delayq.protocol.results import Verdict
from delayq.recovery.checks import Answer
from delayq.recovery.recovery import Recovery
from delayq.service.counters import ProcessCounters
from delayq.service.loop import Loop

from tests.redis.state import NOW
from tests.unit.handlers import support

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from delayq.contract import DelayQueue
    from delayq.contract.files import Reference
    from delayq.protocol.envelope import Task
    from delayq.recovery.checks import Check

    from tests.redis.state import Shard

PATIENCE_SECONDS = 60
EXPIRED = NOW - 1


PYTHON = {"python": {"callable": "unused:unused"}}


def document(check: Mapping[str, object], **spec: Any) -> DelayQueue:  # noqa: ANN401
    return support.document({"exec": {"command": ["true"]}}, recovery={"check": PYTHON | dict(check)}, **spec)


class Asked:
    """A check that records the tasks it was asked about, and gives the set answer when released."""

    stuck = 0

    def __init__(self, verdict: Verdict = Verdict.COMPLETE) -> None:
        self.verdict = verdict
        self.tasks: list[str] = []
        self.at_once = self.most = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def lacks(self) -> dict[Reference, str]:
        return {}

    async def start(self) -> None:
        pass

    async def ask(self, task: Task) -> Answer:
        self.tasks.append(task.id)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.may_answer.wait()
        finally:
            self.at_once -= 1
        return Answer(self.verdict, "as the books say")

    async def close(self) -> None:
        pass


def recovery_of(shard: Shard, check: Check, **spec: Any) -> Recovery:  # noqa: ANN401
    """A recovery that no process runs; spec.recovery.check has these fields beside the check."""
    queue = document(spec)
    address = Address.from_url(shard.server.url)
    return Recovery(shard.commands, address, queue.spec, check, shards=[shard.index])


@asynccontextmanager
async def recovering(shard: Shard, check: Check, **spec: Any) -> AsyncIterator[Recovery]:  # noqa: ANN401
    """A recovery at work, as in a scanner or reaper."""
    recovery = recovery_of(shard, check, **spec)
    loop = Loop(recovery, ProcessCounters("reaper", "q"))
    running = asyncio.create_task(loop.run())
    try:
        yield recovery
    finally:
        loop.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await recovery.close()


async def until(condition: Callable[[], object]) -> None:
    """Poll for a condition that has no event."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 -- what is waited for may be in Redis, or in a thread
            await asyncio.sleep(0.005)
