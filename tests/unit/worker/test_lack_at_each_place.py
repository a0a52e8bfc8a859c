"""Tasks of a claim are started while memory lacks, at any allocation: each starts once, and is settled once."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING

import pytest
from delayq.protocol.results import Lease

from tests.unit.handlers.support import a_task, document
from tests.unit.worker.support import Worker

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task

TASKS = 300  # more than the numbers that Python keeps: counting needs memory, too
ALLOCATIONS = 7000  # of a start without errors, about
QUEUE = document({"http": {"url": "http://unused/"}}, worker={"concurrency": TASKS})
LEASES = [Lease(a_task(b"1", task_id=str(nth)), 0, b"%d:41" % nth, 0) for nth in range(TASKS)]


@pytest.fixture
def _no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report no coroutine of a task that asyncio could not make: pytest's hook lacks the memory, too."""
    gc.collect()  # what other tests left is still reported
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.mark.usefixtures("_no_report")
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("later", [False, True], ids=["at once", "after a turn of the event loop"])
@pytest.mark.parametrize("in_a_row", [1, 5, 20])
async def test_each_task_of_a_claim_starts_once_wherever_memory_lacks(in_a_row: int, *, later: bool) -> None:
    allocator = pytest.importorskip("_testcapi", reason="this Python has no module that fails allocations")
    failed = 0
    for first in range(1, ALLOCATIONS, 331):
        ran = list[str]()

        async def call(task: Task, ran: list[str] = ran) -> None:
            ran.append(task.id)

        worker, begun = Worker(QUEUE, call), False
        worker.receive(*LEASES)
        allocator.set_nomemory(first, first + in_a_row)
        while not begun:
            try:
                worker.start()
                begun = True
            except MemoryError:
                allocator.remove_mem_hooks()
                failed += 1
                if later:
                    await asyncio.sleep(0)
        allocator.remove_mem_hooks()
        settled = await worker.settled()
        assert sorted(ran) == sorted(lease.task.id for lease in LEASES)
        assert sorted(each.lease.member for each in settled) == sorted(lease.member for lease in LEASES)
        assert {each.verb for each in settled} == {"ack"}
    assert failed
