"""Workers are asked in their turns; a wrong or missing answer of one spoils no measurement of others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq_operator.cache.queues import Queues
from delayq_operator.polling import worker_poller
from delayq_operator.polling.worker_poller import WorkerPoller
from delayq_operator.scaling import workers
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scaling.workers import MOST_AT_ONCE, Workers
from delayq_operator.scrape.worker_stats import WorkerStats

from tests.unit.operator.fakes import Clock
from tests.unit.operator.polling.test_scanner_poller import (
    ORDERS,
    Answers,
    Enqueued,
    known,
)
from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scrape.exposition import Client, Question

WORKER: list[Sample] = [
    ("delayq_worker_busy_slots", {"queue": "orders"}, 3.0),
    ("delayq_worker_first_claim_timestamp_seconds", {"queue": "orders"}, 1_000_000.0),
    ("delayq_worker_handler_seconds_sum", {"queue": "orders"}, 30.0),
    ("delayq_worker_handler_seconds_count", {"queue": "orders"}, 60.0),
]


W = replace(POD, name="w", component="worker", created_at=999_980.0, address="10.0.0.1")


class World:
    """The workers of ORDERS, and what they say."""

    def __init__(self, *pods: Pod, **said: list[Sample] | str) -> None:
        self.queues, self.pods, self.answers = Queues(lambda _: None), list(pods), Answers(**said)
        self.queues.seen(known(ORDERS, 10, autoscaling={}))
        inventory: Any = SimpleNamespace(queues=self.queues, pods=SimpleNamespace(of=lambda _: self.pods))
        configs = ScalingConfigs(self.queues)
        of_all = Workers(inventory, configs, cast("WorkQueue", Enqueued()))
        self.survey = WorkerPoller(self.queues, configs, of_all)
        self.stats = of_all.stats(ORDERS)

    async def visit(self) -> float:
        return await self.survey._visit(cast("Client", self.answers), ORDERS)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(workers, "time", clock)
    return clock


async def test_workers_teach_and_one_that_does_not_answer_or_breaks_what_takes_it_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = WorkerStats.take

    def broken(self: WorkerStats, pod: Pod, *rest: Any) -> None:  # noqa: ANN401
        if pod.name == "odd":
            raise OverflowError
        take(self, pod, *rest)

    monkeypatch.setattr(WorkerStats, "take", broken)
    pods = (replace(W, name="odd"), W, replace(W, name="mute"))
    world = World(*pods, w=WORKER, mute="mute refused", odd=WORKER)
    assert await world.visit() == worker_poller.POLL_SECONDS
    assert world.answers.asked == ["odd", "w", "mute"]
    assert (world.stats.lead.seconds, world.stats.handler.seconds) == (30, 0.5)
    assert caplog.messages == ["scrape_crashed"]


@pytest.mark.parametrize(
    "then",
    [[], [replace(W, leaving=True)], [replace(W, address="10.0.0.2")], [replace(W, uid="v")]],
    ids=["gone", "leaving", "elsewhere", "another"],
)
async def test_an_answer_teaches_nothing_when_the_address_may_be_anothers_by_now(then: list[Pod]) -> None:
    world = World(W, w=WORKER)

    class Meanwhile(Answers):
        async def ask(self, pod: Pod, question: Question) -> list[Sample] | str:
            world.pods = then
            return await super().ask(pod, question)

    world.answers = Meanwhile(w=WORKER)
    await world.visit()
    assert (world.stats.lead.seconds, world.stats.handler.seconds) == (None, None)


async def test_those_that_hang_are_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that wait for a place meanwhile."""
    monkeypatch.setattr(worker_poller, "WORKERS_SECONDS", 0.05)
    monkeypatch.setattr(worker_poller, "AT_ONCE", (4, 2))
    world = World(*(replace(W, name=f"w{n:02}") for n in range(20)))

    class Hangs(Answers):
        async def ask(self, pod: Pod, question: Question) -> list[Sample] | str:  # noqa: ARG002
            return await asyncio.sleep(60, "")

    world.answers = Hangs()
    async with asyncio.timeout(5):
        await world.visit()
    assert world.stats.lead.seconds is None


async def test_a_queue_that_another_autoscaler_scales_is_visited_less_often_and_measures_no_lead_time() -> (
    None
):
    world = World(W, w=WORKER)
    world.queues.seen(known(ORDERS, 10, version=101))
    assert await world.visit() == worker_poller.IDLE_SECONDS
    assert world.answers.asked == ["w"]
    assert world.stats.lead.seconds is None
    world.queues.seen(known(ORDERS, 10, version=102, guard={"redisLock": {}}))
    assert await world.visit() == worker_poller.POLL_SECONDS


async def test_more_workers_than_one_visit_can_scrape_are_scraped_by_the_next_ones_at_once() -> None:
    pods = [replace(W, name=f"w{n:02}") for n in range(MOST_AT_ONCE + 1)]
    world = World(*pods, **{pod.name: "refused" for pod in pods})
    assert await world.visit() == worker_poller.FULL_SECONDS
    assert await world.visit() == worker_poller.POLL_SECONDS
    assert world.answers.asked == [pod.name for pod in pods]
