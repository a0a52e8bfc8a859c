"""Whole workers and scanners, as processes run them."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING

from delayq import Bury, Retry
from delayq.handlers import forked_children
from delayq.protocol.commands import Commands
from delayq.scanner.scanner import Scanner
from delayq.worker.worker import Worker

from tests.histories.plan import KNOWN, MAX_ATTEMPTS, MAX_CRASHES, QUEUE
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from delayq.contract import Spec
    from delayq.handlers.base import Kinds
    from delayq.protocol.envelope import Task

    from tests.histories.plan import Plan


def spec(concurrency: int) -> Spec:
    delivery = {
        "leaseDurationSeconds": 1,
        "maxAttempts": MAX_ATTEMPTS,
        "maxCrashes": MAX_CRASHES,
        "handlerTimeoutSeconds": 2,
        "maxBlockMilliseconds": 100,
        "backoff": {"delaysSeconds": [0]},
    }
    worker = {"concurrency": concurrency, "drainTimeoutSeconds": 1}
    return document({"python": {"callable": "unused:unused"}}, worker=worker, delivery=delivery).spec


async def handle(task: Task) -> None:
    """Ends as the task asks for; some last longer than a lease."""
    random = Random(task.token)
    fate = task.payload["fate"]
    await asyncio.sleep(random.random() * (1.5 if fate == "slow" else 0.05))
    if fate == "fails" and random.random() < 0.7:
        raise Retry(f"{fate} {task.token}", delay_ms=random.randrange(100))
    if fate == "buried":
        raise Bury(f"{fate} {task.token}")


async def work(plan: Plan, name: str) -> None:
    """A worker; one in two has one kind only, and parks the others."""
    own = spec(4)
    kinds: Kinds | None = {(KNOWN, None): own.delivery} if plan.random(name).random() < 0.5 else None
    worker = Worker(own, Commands(QUEUE), plan.address, handle, kinds=kinds)
    await _until_over(plan, worker)


async def scan(plan: Plan, name: str) -> None:
    """A scanner."""
    await _until_over(plan, Scanner(spec(1), Commands(QUEUE), plan.address, owner=name))


async def _until_over(plan: Plan, service: Worker | Scanner) -> None:
    forked_children.watch()  # as processes of delayq do: this one is no child that a handler forked
    stop, hurry = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(service.run(stop, hurry))
    await asyncio.sleep(max(0.0, plan.ends - 1.0 - time.monotonic()))
    stop.set()
    hurry.set()
    await running
