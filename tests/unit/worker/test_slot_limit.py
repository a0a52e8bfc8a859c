"""When a worker ends because no handler can begin. tests/process/test_starved.py has the kernel's limits."""

from __future__ import annotations

import asyncio
import time
from unittest.mock import patch

import pytest
from delayq.errors import NotStarted
from delayq.protocol.alarm import Alarm
from delayq.protocol.results import Lease
from delayq.service.counters import WorkerCounters
from delayq.service.loop import Loop, log
from delayq.worker.slot_limit import LacksResources, SlotLimit
from delayq.worker.slots import Running, Slots

from tests.redis.recovering import until
from tests.unit.handlers.support import a_task, document


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_handler_that_begins_between_two_lacks_ends_the_count(concurrency: int) -> None:
    queue = document({"python": {"callable": "unused:unused"}}, worker={"concurrency": concurrency})
    slots = Slots(queue.spec, WorkerCounters("worker", "orders"))
    limit = SlotLimit(slots, end_seconds=0)
    now = time.monotonic()
    running = Running(Lease(a_task(b""), 0, b"1:1", 0), now, now)
    limit.note(running, NotStarted("no descriptor"))
    slots.counters.handler.observe(0.1)
    limit.note(running, NotStarted("no descriptor"))
    limit.check()
    limit.note(running, NotStarted("no descriptor"))
    with pytest.raises(LacksResources, match="no handler could begin"):
        limit.check()


class Failing:
    """A service whose steps fail for want of memory."""

    name, blocks = "claim_loop", False

    def __init__(self) -> None:
        self.alarm, self.steps, self.fails = Alarm(), 0, True

    async def step(self) -> float:
        self.steps += 1
        if self.fails:
            raise MemoryError
        return 0.0


async def test_a_worker_whose_steps_all_fail_for_want_of_memory_ends_and_one_that_recovers_does_not() -> None:
    queue = document({"python": {"callable": "unused:unused"}})
    service, slots = Failing(), Slots(queue.spec, WorkerCounters("worker", "orders"))
    loop = Loop(service, slots.counters)
    limit = SlotLimit(slots, lambda: [loop], end_seconds=0.1)
    task = asyncio.create_task(loop.run())
    try:
        await until(lambda: loop.lacking_seconds > 0)
        service.fails = False
        await until(lambda: loop.last_success is not None)
        assert loop.lacking_seconds == 0
        await limit.step()
        limit.check()
        service.fails = True
        await until(lambda: loop.lacking_seconds > 0.1)
        await limit.step()
        with pytest.raises(LacksResources, match="each step of claim_loop failed"):
            limit.check()
    finally:
        loop.stop()
        await task


async def test_a_loop_goes_on_after_an_error_while_it_logged_an_error() -> None:
    service = Failing()
    loop = Loop(service, WorkerCounters("worker", "orders"))
    with (
        patch("delayq.service.loop.LONGEST_PAUSE_SECONDS", 0.01),
        patch.object(log, "warning", side_effect=MemoryError),
    ):
        task = asyncio.create_task(loop.run())
        await until(lambda: service.steps == 3)
    loop.stop()
    await task
