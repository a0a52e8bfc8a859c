"""When a worker ends because no handler can begin. tests/process/test_starved.py has the kernel's limits."""

from __future__ import annotations

import time

import pytest
from delayq.errors import NotStarted
from delayq.protocol.results import Lease
from delayq.service.counters import WorkerCounters
from delayq.worker.slot_limit import LacksResources, SlotLimit
from delayq.worker.slots import Running, Slots

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
