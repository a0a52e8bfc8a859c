"""Who claims, who is on the way and who will not come; what starts and handlers teach, and what they must not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq_operator.scrape.worker_stats import Fleet, WorkerStats

from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample
    from delayq_operator.cache.pod import Pod

NOW = 1_000_000.0


def worker(name: str, age: float = 100.0, **fields: object) -> Pod:
    return replace(POD, name=name, component="worker", created_at=NOW - age, **fields)  # type: ignore[arg-type]


def says(first_claim: float | None = None, total: float = 0, count: float = 0) -> list[Sample]:
    found: list[Sample] = [
        ("delayq_worker_handler_seconds_sum", {}, total),
        ("delayq_worker_handler_seconds_count", {}, count),
    ]
    return (
        found
        if first_claim is None
        else [*found, ("delayq_worker_first_claim_timestamp_seconds", {}, first_claim)]
    )


def test_ready_workers_and_those_that_have_claimed_count() -> None:
    """The first claim comes before Kubernetes calls a pod ready."""
    stats, pods = (
        WorkerStats({}),
        [worker("ready", ready=True), worker("claims", 5), worker("starts", 5), worker("young", 2)],
    )
    stats.take(pods[1], says(NOW - 1), NOW)
    assert stats.fleet(pods, NOW) == Fleet(ready=2, starting=2, starting_seconds=2)


def test_one_that_is_not_ready_any_more_claims_nothing_and_is_not_on_the_way() -> None:
    """Its node may be gone: it must not count as capacity, nor as capacity to come."""
    stats = WorkerStats({})
    stats.take(worker("w"), says(NOW - 90), NOW)
    assert stats.fleet([worker("w", ready=True)], NOW) == Fleet(ready=1)
    assert stats.fleet([worker("w")], NOW) == Fleet()


@pytest.mark.parametrize(
    "fields", [{"leaving": True}, {"failed": True}, {"trouble": "w: ImagePullBackOff"}, {"age": 61.0}]
)
def test_one_that_leaves_or_will_not_come_does_not_count(fields: dict[str, object]) -> None:
    age = fields.pop("age", 5.0)
    assert isinstance(age, float)
    assert WorkerStats({}).fleet([worker("w", age, **fields)], NOW) == Fleet()


def test_a_start_teaches_once_and_an_operator_takes_up_what_an_earlier_one_learnt() -> None:
    stats = WorkerStats({})
    assert (stats.lead.seconds, stats.handler.seconds) == (None, None)
    for _ in range(3):
        stats.take(worker("w", 20), says(NOW - 2, total=4, count=8), NOW)
    assert (stats.lead.seconds, stats.handler.seconds) == (27, 0.5)
    again = WorkerStats({"leadTimeSeconds": 8, "handlerMilliseconds": 500})
    assert (again.lead.seconds, again.handler.seconds) == (8, 0.5)


def kinds_of(**runs: tuple[float, float]) -> list[Sample]:
    """What a worker says of its kinds: time in handlers, and runs."""
    return [
        (f"delayq_worker_kind_{name}_total", {"queue": "orders", "kind": kind}, each[at])
        for at, name in enumerate(("handler_seconds", "runs"))
        for kind, each in runs.items()
    ]


def test_workers_teach_of_each_kind_and_those_of_an_earlier_operator_once() -> None:
    stats = WorkerStats({}, since=NOW)
    old, new = worker("old"), worker("new", -5)
    stats.take(old, kinds_of(mail=(10, 1000), report=(120, 2), rare=(0, 0)), NOW)
    assert stats.kinds.seconds == {"mail": 0.01, "report": 60}
    stats.take(worker("older"), kinds_of(report=(900, 1)), NOW)
    assert stats.kinds.seconds["report"] == 60
    stats.fleet([old, new], NOW)
    stats.take(new, [*says(), *kinds_of(report=(50, 1), rare=(float("nan"), 1))], NOW)
    assert stats.kinds.seconds == {"mail": 0.01, "report": pytest.approx(170 / 3)}
    assert stats.handler.seconds is None


@pytest.mark.parametrize(
    "status",
    [
        {"leadTimeSeconds": "x", "handlerMilliseconds": -1},
        {"leadTimeSeconds": 2**31 - 1, "handlerMilliseconds": 2**63 - 1},
        {"leadTimeSeconds": 10**400, "handlerMilliseconds": 10**400},
    ],
)
def test_an_edited_status_is_not_believed(status: dict[str, object]) -> None:
    assert (WorkerStats(status).lead.seconds, WorkerStats(status).handler.seconds) == (None, None)


def test_workers_that_start_together_teach_of_as_many() -> None:
    """A seventh was created a while before, and tells of a start of its own."""
    stats = WorkerStats({})
    pods = [worker(f"w{number}", 20 + number / 10) for number in range(6)]
    before = worker("before", 60)
    for pod in pods:
        stats.take(pod, says(NOW - 12), NOW, [*pods, before])
    assert stats.lead.of(6) == pytest.approx(8.5 * 8 / 7)
    stats.take(before, says(NOW - 56), NOW, [*pods, before])
    assert stats.lead.of(1) == pytest.approx(6.0)
    assert stats.lead.of(6) == pytest.approx(8.5 * 8 / 7)


def test_a_worker_that_waited_for_redis_does_not_teach_either() -> None:
    """An outage of 20 minutes would have every later rush begun 20 minutes early."""
    stats, waits, young = WorkerStats({}), worker("waits", 1000), worker("young", 5)
    stats.block([waits, young], NOW)
    stats.take(waits, says(NOW), NOW)
    assert stats.lead.seconds is None
    stats.take(young, says(NOW), NOW)
    assert stats.lead.seconds == 7.5  # and half of it, for it was only one


def test_a_worker_that_waited_for_a_secret_does_not_teach_either() -> None:
    """It claims when the Secret is there, however long that takes."""
    stats, waits = WorkerStats({}), worker("waits", 1000)
    key = {"queue": "orders", "kind": "Secret", "name": "shop", "key": "token"}
    stats.take(waits, [("delayq_missing_references", key, 1.0)], NOW - 500)
    stats.take(waits, says(NOW), NOW)
    assert stats.lead.seconds is None


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -1.0, 10**400], ids=["nan", "inf", "negative", "huge"]
)
def test_nonsense_teaches_nothing_nor_does_a_handler_of_more_than_a_week(value: float) -> None:
    stats = WorkerStats({})
    stats.take(worker("w"), says(value, total=value, count=value), NOW)
    stats.take(worker("w"), says(None, total=value, count=3), NOW)
    stats.take(worker("w"), says(None, total=3, count=value), NOW)
    stats.take(worker("w"), [], NOW)
    stats.take(worker("none"), says(total=5, count=0), NOW)
    stats.take(worker("long"), says(total=15 * 86_400, count=2), NOW)
    assert (stats.lead.seconds, stats.handler.seconds) == (None, None)
    stats.take(worker("week"), says(total=14 * 86_400, count=2), NOW)
    assert stats.handler.seconds == 7 * 86_400
