"""Readings of scanners: from as few of them as will do, and none of them ends those of the others."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.contract.queue import MOST_SHARDS
from delayq_operator.base.names import Key
from delayq_operator.base.phrases import BY_COMMAND
from delayq_operator.cache.queues import Queues
from delayq_operator.polling import scanner_poller
from delayq_operator.polling.scanner_poller import ScannerPoller
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scaling.workers import Workers
from delayq_operator.scrape.backlog import SuspendCommand
from delayq_operator.status import readiness

from tests.unit.operator.fakes import Clock
from tests.unit.operator.scrape.test_backlog import scanner
from tests.unit.operator.scrape.test_exposition import POD
from tests.unit.operator.scrape.test_shards import leads, shard_map
from tests.unit.operator.views import body as queue_body
from tests.unit.operator.views import view

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.autoscaler import Autoscaler
    from delayq_operator.scrape.backlog import Reading
    from delayq_operator.scrape.exposition import Client, Question

ORDERS = Key("shop", "orders")
LEADS, STANDS_BY = scanner({0: True, 1: True}, scheduled=3), scanner({0: False, 1: False})
HALF, OTHER_HALF = scanner({0: True, 1: False}, scheduled=3), scanner({0: False, 1: True}, scheduled=3)


class Enqueued:
    """In the place of WorkQueue: how often the queue was enqueued."""

    times = 0

    def enqueue(self, _key: Key) -> None:
        self.times += 1

    def enqueue_in(self, _key: Key, seconds: float) -> None:
        assert seconds >= 0
        self.times += 1


class Answers:
    """In the place of Client: what each pod says."""

    def __init__(self, **said: list[Sample] | str) -> None:
        self.said, self.asked = said, list[str]()
        self.questions: dict[str, Question] = {}

    async def ask(self, pod: Pod, question: Question) -> list[Sample] | str:
        self.asked.append(pod.name)
        self.questions[pod.name] = question
        return self.said[pod.name]


class Evaluations:
    """In the place of Autoscaler, and of the copy of the pods: what it was given to decide on."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = list(pods)
        self.of: list[tuple[bool, float]] = []
        self.rested = 0

    def pods_of(self, _key: Key) -> list[Pod]:
        return self.pods

    def evaluate(self, _key: Key, reading: Reading | None, asked: tuple[float, ...], now: float) -> None:
        assert asked
        self.of.append((reading is not None, now))

    def suspend(self, _key: Key, _now: float) -> None:
        self.rested += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scanner_poller, "time", clock)
    return clock


def known(key: Key, lateness_seconds: int, version: int = 100, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    made = queue_body(name=key.name, namespace=key.namespace, uid=key.name, resourceVersion=str(version))
    made["spec"] |= {"objective": {"latenessMilliseconds": lateness_seconds * 1000}} | spec
    return made


@pytest.fixture
def scraper(clock: Clock) -> ScannerPoller:  # noqa: ARG001 -- the clock first
    """Of one queue with three scanners."""
    queues, work = Queues(lambda _: None), cast("WorkQueue", Enqueued())
    queues.seen(known(ORDERS, 10))
    evaluations = Evaluations(*(replace(POD, name=name) for name in ("a", "b", "c")))
    inventory: Any = SimpleNamespace(
        queues=queues,
        pods=SimpleNamespace(of=evaluations.pods_of),
        children=SimpleNamespace(get=lambda *_: None),
    )
    configs = ScalingConfigs(queues)
    workers, scaler = Workers(inventory, configs, work), cast("Autoscaler", evaluations)
    return ScannerPoller(inventory, configs, scaler, workers=workers, work=work)


async def read(scraper: ScannerPoller, answers: Answers) -> list[str]:
    """Read ORDERS once; who was asked, one after the other."""
    answers.asked.clear()
    await scraper._visit(cast("Client", answers), ORDERS)
    return answers.asked


async def test_scanners_are_scraped_until_every_shard_has_a_reading_and_the_leader_first(
    scraper: ScannerPoller,
) -> None:
    steps = [
        (Answers(a=HALF, b=STANDS_BY, c=OTHER_HALF), ["a", "b", "c"]),
        (Answers(a=STANDS_BY, b=LEADS, c=STANDS_BY), ["a", "b"]),
        (Answers(a=STANDS_BY, b=LEADS, c=STANDS_BY), ["b"]),
        (Answers(a=STANDS_BY, b="b refused", c=LEADS), ["b", "a", "c"]),
        (Answers(a=STANDS_BY, b="b refused", c=LEADS), ["c"]),
    ]
    for answers, expected in steps:
        assert await read(scraper, answers) == expected
        found = scraper.backlog(ORDERS)
        assert found is not None
        assert (found.scheduled, found.whole) == (6, True)


async def test_the_bound_of_an_answer_is_what_the_spec_or_the_last_answer_asks_for(
    scraper: ScannerPoller,
) -> None:
    """While shards become fewer, the spec says 1 already; after a restart in the middle, nothing says how many."""
    eight = leads(*range(8), of=8, reported=shard_map(3, 1, 8, 1))
    one = leads(0, of=1, reported=shard_map(4, 1, 1, 1))
    too_much = "a answers more than it can have to say"
    said: list[tuple[list[Sample] | str, int]] = [
        (too_much, 1),
        (eight, MOST_SHARDS),
        ("a refused", 8),
        (one, 8),
        (one, 1),
    ]
    answers = Answers(b="b refused", c="c refused")
    for answer, expected in said:
        answers.said["a"] = answer
        await read(scraper, answers)
        assert answers.questions["a"].shards == expected


async def test_many_pods_that_do_not_answer_take_a_bounded_time(scraper: ScannerPoller, clock: Clock) -> None:
    """A user who may create pods may give them our labels."""
    cast("Evaluations", scraper.autoscaler).pods[:] = [replace(POD, name=f"p{n:03}") for n in range(500)]

    class Slow(Answers):
        async def ask(self, pod: Pod, question: Question) -> list[Sample] | str:  # noqa: ARG002
            clock.now += 2
            self.asked.append(pod.name)
            return f"{pod.name} does not answer"

    assert len(await read(scraper, Slow())) == 3  # the 4 s have to be over
    assert scraper.read_error(ORDERS) == "p000 does not answer"


async def test_a_key_that_scanners_wait_for_is_reconciled_when_it_changes(scraper: ScannerPoller) -> None:
    ref = {"name": "shop", "key": "token"}
    http = {"url": "https://shop/", "secretHeaders": {"Authorization": ref}}
    scraper._queues.seen(known(ORDERS, 10, version=101, recovery={"check": {"http": http}}))
    waits: list[Sample] = [("delayq_missing_references", {"queue": "orders", "kind": "Secret", **ref}, 1.0)]
    work, times = cast("Enqueued", scraper._work), []
    for answer in (LEADS, [*LEADS, *waits], [*LEADS, *waits], LEADS):
        await read(scraper, Answers(a=answer))
        times.append(work.times)
    assert times == [1, 2, 2, 3]


async def test_a_suspension_is_reconciled_and_outlasts_readings_that_fail(
    scraper: ScannerPoller, clock: Clock
) -> None:
    suspended: Sample = (
        "delayq_suspended_timestamp_seconds",
        {"queue": "orders", "shard": "0", "policy": "Drain"},
        5.0,
    )
    evaluations, work, times = scale(scraper), cast("Enqueued", scraper._work), []
    for answer in (LEADS, [*LEADS, suspended], "a refused", LEADS):
        clock.now += 30
        await read(scraper, Answers(a=answer, b="b refused", c="c refused"))
        times.append((work.times, scraper.command(ORDERS), len(evaluations.of)))
    command = SuspendCommand(5.0, drains=True)
    # Nothing is decided while it is in effect, also while the scanners cannot be read.
    assert times == [(1, None, 1), (2, command, 1), (3, command, 1), (4, None, 2)]


@pytest.mark.parametrize("command", [SuspendCommand(1_800_000_000.0), SuspendCommand(5.0, drains=True)])
async def test_a_new_operator_takes_a_suspension_from_the_status_until_it_has_read_a_scanner(
    scraper: ScannerPoller, command: SuspendCommand
) -> None:
    """Else its start would give a drained queue its workers back."""
    body = known(ORDERS, 10, version=101)
    [said] = [each for each in readiness.everything(view(command=command)) if each.type == "Suspended"]
    body["status"] = {"conditions": [{"type": said.type, "message": said.message}]}
    scraper._queues.seen(body)
    assert scraper.command(ORDERS) == command
    await read(scraper, Answers(a="a refused", b="b refused", c="c refused"))
    assert scraper.command(ORDERS) == command
    await read(scraper, Answers(a=LEADS, b="b refused", c="c refused"))
    assert scraper.command(ORDERS) is None


async def test_a_status_that_another_client_has_written_hinders_nothing(scraper: ScannerPoller) -> None:
    """Otherwise the queue would never be read or reconciled again: only a reconciliation writes its status."""
    body = known(ORDERS, 10, version=101)
    message = f"{BY_COMMAND} since 2026-02-30T99:00:00Z, with --drain"
    body["status"] = {"conditions": [{"type": "Suspended", "message": message}]}
    scraper._queues.seen(body)
    assert scraper.command(ORDERS) is None


# --- Queues that are scaled by their work.


def scale(scraper: ScannerPoller, **autoscaling: object) -> Evaluations:
    scraper._queues.seen(known(ORDERS, 10, version=101, autoscaling=autoscaling, shards=2))
    return cast("Evaluations", scraper.autoscaler)


async def test_a_queue_that_is_scaled_is_asked_for_what_a_decision_needs(scraper: ScannerPoller) -> None:
    """And for kinds while their handler times differ."""
    answers = Answers(a=LEADS)
    await read(scraper, answers)
    assert answers.questions["a"].horizons == ()
    evaluations = scale(scraper, leadTimeSeconds=16)
    assert (evaluations.of, evaluations.rested) == ([], 1)
    await read(scraper, answers)
    asked = answers.questions["a"]
    assert (asked.horizons[0], asked.horizons[-1], asked.shards) == (0.5, 3600, 2)
    assert 20 in asked.horizons
    assert [reported for reported, _ in evaluations.of] == [True]
    kinds_seconds = []
    for kind, seconds in (("mail", 1.0), ("push", 1.9), ("report", 2.0)):
        scraper.workers.stats(ORDERS).kinds.take(kind, "w", seconds, 1)
        await read(scraper, answers)
        kinds_seconds.append(answers.questions["a"].kinds_seconds)
    assert kinds_seconds == [0, 0, 20], "the lead time and two periods"


async def test_no_more_is_decided_than_once_a_period(scraper: ScannerPoller, clock: Clock) -> None:
    evaluations, answers = scale(scraper), cast("Client", Answers(a=LEADS))
    for _ in range(5):
        assert await scraper._visit(answers, ORDERS) == 2
        clock.now += 1
    assert [now - 1_000_000 for _, now in evaluations.of] == [0, 2, 4]


async def test_a_poll_without_a_slot_in_time_evaluates_all_the_same(
    scraper: ScannerPoller, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scanners of others that hang, with as many shards: a decision has to know that nothing is known."""
    monkeypatch.setattr(scanner_poller, "PLACE_SECONDS", 0.05)
    evaluations = scale(scraper)
    await read(scraper, Answers(a=leads(*range(8), of=8, reported=shard_map(3, 8, 8, 8))))
    evaluations.of.clear()
    clock.now += 5
    most, each = scanner_poller.LARGE_AT_ONCE
    async with AsyncExitStack() as stack:
        for n in range(most):
            await stack.enter_async_context(scraper._large.place(f"namespace-{n // each}", 0))
        assert await read(scraper, Answers()) == []
    assert scraper.read_error(ORDERS) == "the operator was busy reading other queues"
    assert [reported for reported, _ in evaluations.of] == [False]
