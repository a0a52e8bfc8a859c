"""Readings of scanners: from as few of them as will do, and none of them ends those of the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.contract.queue import MOST_SHARDS
from delayq_operator.base.names import Key
from delayq_operator.cache.queues import Queues
from delayq_operator.polling import poller, scanner_poller
from delayq_operator.polling.scanner_poller import ScannerPoller
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS, BacklogCache
from delayq_operator.scrape.exposition import Client, Question
from delayq_operator.scrape.worker_stats import WorkerStats
from delayq_operator.status import guards
from delayq_operator.status.guards import Guards
from delayq_operator.status.lateness import Latenesses

from tests.unit.operator.fakes import Clock
from tests.unit.operator.scrape.test_backlog import scanner, scanner_text
from tests.unit.operator.scrape.test_exposition import POD, body, listening
from tests.unit.operator.scrape.test_shards import leads, shard_map
from tests.unit.operator.views import body as queue_body

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.autoscaler import Autoscaler
    from delayq_operator.scrape.backlog import Reading

ORDERS, MAILS = Key("shop", "orders"), Key("shop", "mails")
LEADS, STANDS_BY = scanner({0: True, 1: True}, scheduled=3), scanner({0: False, 1: False})
HALF, OTHER_HALF = scanner({0: True, 1: False}, scheduled=3), scanner({0: False, 1: True}, scheduled=3)


class Enqueued:
    """In the place of WorkQueue."""

    def __init__(self) -> None:
        self.of: Counter[Key] = Counter()

    def enqueue(self, key: Key) -> None:
        self.of[key] += 1

    def enqueue_in(self, key: Key, seconds: float) -> None:
        assert seconds > 0
        self.of[key] += 1


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
    """In the place of Autoscaler: what it was given to decide on."""

    def __init__(self, pods: Pods) -> None:
        self.pods, self.of, self.rested = pods, list[tuple[Key, bool, float]](), Counter[Key]()
        self.known = WorkerStats({})

    def workers(self, key: Key) -> list[Pod]:
        return [pod for pod in self.pods.of(key) if pod.component == "worker"]

    def stats(self, _key: Key) -> WorkerStats:
        return self.known

    def evaluate(self, key: Key, reading: Reading | None, asked: tuple[float, ...], now: float) -> None:
        assert asked
        self.of.append((key, reading is not None, now))

    def suspend(self, key: Key, _now: float) -> None:
        self.rested[key] += 1


class Pods:
    """In the place of the copy of the pods."""

    def __init__(self) -> None:
        self.there: dict[Key, list[Pod]] = {}

    def of(self, key: Key) -> list[Pod]:
        return self.there.get(key, [])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scanner_poller, "time", clock)
    monkeypatch.setattr(guards, "time", clock)
    return clock


@pytest.fixture
def enqueued() -> Enqueued:
    return Enqueued()


@pytest.fixture
def pods() -> Pods:
    pods = Pods()
    pods.there[ORDERS] = [replace(POD, name=name) for name in ("a", "b", "c")]
    return pods


def known(key: Key, lateness_seconds: int, version: int = 100, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    made = queue_body(name=key.name, namespace=key.namespace, uid=key.name, resourceVersion=str(version))
    made["spec"] |= {"objective": {"latenessMilliseconds": lateness_seconds * 1000}} | spec
    return made


@pytest.fixture
def scraper(clock: Clock, enqueued: Enqueued, pods: Pods) -> ScannerPoller:  # noqa: ARG001 -- the clock first
    queues = Queues(lambda _: None)
    for key in (ORDERS, MAILS):
        queues.seen(known(key, 10))
    inventory = SimpleNamespace(queues=queues, pods=pods)
    evaluations, configs, work = (
        cast("Autoscaler", Evaluations(pods)),
        ScalingConfigs(queues),
        cast("WorkQueue", enqueued),
    )
    guards, lateness = Guards(configs, work), Latenesses(configs, work)
    return ScannerPoller(
        cast("Inventory", inventory), configs, evaluations, guards=guards, lateness=lateness, work=work
    )


async def read(scraper: ScannerPoller, answers: Answers) -> list[str]:
    """Read ORDERS once; who was asked, one after the other."""
    answers.asked.clear()
    await scraper._read(cast("Client", answers), ORDERS)
    return answers.asked


async def test_scanners_are_asked_until_every_shard_was_told_of_and_the_leader_first(
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
    eight = leads(*range(8), of=8, told=shard_map(3, 1, 8, 1))
    one = leads(0, of=1, told=shard_map(4, 1, 1, 1))
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


async def test_many_pods_that_do_not_answer_take_a_bounded_time(
    scraper: ScannerPoller, pods: Pods, clock: Clock
) -> None:
    """Whoever may create pods may give them our labels."""
    pods.there[ORDERS] = [replace(POD, name=f"p{n:03}") for n in range(500)]

    class Slow(Answers):
        async def ask(self, pod: Pod, question: Question) -> list[Sample] | str:  # noqa: ARG002
            clock.now += 2
            self.asked.append(pod.name)
            return f"{pod.name} does not answer"

    assert len(await read(scraper, Slow())) == 3  # the 4 s have to be over
    assert scraper.read_error(ORDERS) == "p000 does not answer"


async def test_scanners_that_are_gone_are_told_of_when_their_last_reading_is_too_old(
    scraper: ScannerPoller, clock: Clock, enqueued: Enqueued, pods: Pods
) -> None:
    """Nobody else would say: what was Connected would stay so until the next look that nothing asked for."""
    await read(scraper, Answers(a=LEADS))
    pods.there.clear()
    await read(scraper, Answers())
    assert enqueued.of == {ORDERS: 1}
    clock.now += FRESH_SECONDS + 1
    for _ in range(3):
        await read(scraper, Answers())
    assert enqueued.of == {ORDERS: 2}


async def test_a_reading_that_was_under_way_when_its_queue_went_is_not_kept(scraper: ScannerPoller) -> None:
    await read(scraper, Answers(a=LEADS))
    scraper._queues.gone(ORDERS, ORDERS.name)
    scraper.forget(ORDERS)
    await read(scraper, Answers(a=LEADS))
    assert (scraper.backlog(ORDERS), scraper._caches, scraper._evaluated_at) == (None, {}, {})


# --- Queues that are scaled by their work.


def evaluations(scraper: ScannerPoller) -> Evaluations:
    return cast("Evaluations", scraper.autoscaler)


def scale(scraper: ScannerPoller, **autoscaling: object) -> None:
    scraper._queues.seen(known(ORDERS, 10, version=101, autoscaling=autoscaling, shards=2))


async def test_a_queue_that_is_scaled_is_asked_for_what_a_decision_needs(scraper: ScannerPoller) -> None:
    answers = Answers(a=LEADS)
    await read(scraper, answers)
    assert answers.questions["a"].horizons == ()
    assert (evaluations(scraper).of, evaluations(scraper).rested) == ([], {ORDERS: 1})
    scale(scraper, leadTimeSeconds=16)
    await read(scraper, answers)
    asked = answers.questions["a"]
    assert (asked.horizons[0], asked.horizons[-1], asked.shards) == (0.5, 3600, 2)
    assert 20 in asked.horizons
    assert [(key, told) for key, told, _ in evaluations(scraper).of] == [(ORDERS, True)]


async def test_there_is_an_evaluation_also_when_nothing_could_be_read(
    scraper: ScannerPoller, pods: Pods, clock: Clock
) -> None:
    """Who sees nothing has to know: a decision holds, and then falls back."""
    scale(scraper)
    await read(scraper, Answers(a="a refused", b="b refused", c="c refused"))
    pods.there.clear()
    clock.now += 2
    await read(scraper, Answers())
    assert [told for _, told, _ in evaluations(scraper).of] == [False, False]


async def test_no_more_is_decided_than_the_spec_says(scraper: ScannerPoller, clock: Clock) -> None:
    scale(scraper, periodSeconds=10)
    for _ in range(5):
        await read(scraper, Answers(a=LEADS))
        clock.now += 5
    assert [now - 1_000_000 for _, _, now in evaluations(scraper).of] == [0, 10, 20]
    assert scraper._pace(ORDERS) == scanner_poller.PERIOD_SECONDS  # people are told as often as of any other
    assert scraper._pace(MAILS) == scanner_poller.PERIOD_SECONDS
    scraper._queues.seen(known(MAILS, 10, version=101, autoscaling={"periodSeconds": 1}))
    assert scraper._pace(MAILS) == 1


async def test_a_poll_without_a_slot_in_time_evaluates_all_the_same(
    scraper: ScannerPoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scanners of others that hang, with as many shards: a decision has to know that nothing is known."""
    monkeypatch.setattr(scanner_poller, "PLACE_SECONDS", 0.05)
    scraper._queues.seen(known(ORDERS, 10, version=101, autoscaling={}, shards=8))
    most, each = scanner_poller.LARGE_AT_ONCE
    async with AsyncExitStack() as stack:
        for n in range(most):
            await stack.enter_async_context(scraper._large.place(f"namespace-{n // each}", 0))
        assert await read(scraper, Answers()) == []
    assert scraper.read_error(ORDERS) == "the operator was busy reading other queues"
    assert [told for _, told, _ in evaluations(scraper).of] == [False]


# --- Over HTTP.


async def test_no_answer_and_no_bug_ends_the_readings_of_others(
    scraper: ScannerPoller, pods: Pods, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A tenant's pod answers anything; here even the code that keeps it breaks."""
    answers = [b'delayq_shard_leader{x="1"} 1\n', b'delayq_tasks{shard="0"} 1e999\n', b"\xff\n", b""]
    good, turn = scanner_text({0: True}, (), scheduled=3), iter(range(10**9))
    scraper._caches[ORDERS] = cast("BacklogCache", SimpleNamespace(leader=""))  # has no take()
    monkeypatch.setattr(scanner_poller, "PERIOD_SECONDS", 0.02)
    monkeypatch.setattr(poller, "BROKEN_SECONDS", 0.02)
    monkeypatch.setattr(poller, "SPREAD_SECONDS", 0.02)

    async def serve(writer: asyncio.StreamWriter) -> None:
        n = next(turn)
        writer.write(body(good if n % 2 else answers[n // 2 % len(answers)]))

    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(serve))
        monkeypatch.setattr(scanner_poller, "Client", lambda: Client(port))
        pods.there = {ORDERS: [POD], MAILS: [POD]}
        running = asyncio.create_task(scraper.run())
        async with asyncio.timeout(10):
            while next(turn) < 60 or scraper.backlog(MAILS) is None:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.02)
        assert not running.done()
        running.cancel()
    assert "scrape_crashed" in caplog.messages
