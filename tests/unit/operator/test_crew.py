"""Who claims, who is on the way and who will not come; what starts and handlers teach, and what they must not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq_operator.crew import AGAIN_SECONDS, MOST_AT_ONCE, Crew, Fleet, busy

from tests.unit.operator.test_scrape_exposition import POD

if TYPE_CHECKING:
    from delayq_operator.objects import Sample
    from delayq_operator.pod import Pod

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
    crew, pods = (
        Crew({}),
        [worker("ready", ready=True), worker("claims", 5), worker("starts", 5), worker("young", 2)],
    )
    crew.take(pods[1], says(NOW - 1))
    assert crew.fleet(pods, NOW) == Fleet(ready=2, starting=2, starting_seconds=2)


def test_one_that_is_not_ready_any_more_claims_nothing_and_is_not_on_the_way() -> None:
    """Its node may be gone: it must not count as capacity, nor as capacity to come."""
    crew = Crew({})
    crew.take(worker("w"), says(NOW - 90))
    assert crew.fleet([worker("w", ready=True)], NOW) == Fleet(ready=1)
    assert crew.fleet([worker("w")], NOW) == Fleet()


@pytest.mark.parametrize(
    "fields", [{"leaving": True}, {"failed": True}, {"trouble": "w: ImagePullBackOff"}, {"age": 61.0}]
)
def test_one_that_leaves_or_will_not_come_does_not_count(fields: dict[str, object]) -> None:
    age = fields.pop("age", 5.0)
    assert isinstance(age, float)
    assert Crew({}).fleet([worker("w", age, **fields)], NOW) == Fleet()


def test_one_that_usually_takes_long_is_waited_for() -> None:
    assert Crew({"leadSeconds": 60}).fleet([worker("w", 170)], NOW).starting == 1
    assert Crew({"leadSeconds": 60}).fleet([worker("w", 190)], NOW).starting == 0


def test_a_start_teaches_once_and_an_operator_takes_up_what_an_earlier_one_learnt() -> None:
    crew = Crew({})
    assert (crew.lead.seconds, crew.handler.seconds) == (None, None)
    for _ in range(3):
        crew.take(worker("w", 10), says(NOW - 2, total=4, count=8))
    assert (crew.lead.seconds, crew.handler.seconds) == (8, 0.5)
    again = Crew({"leadSeconds": 8, "handlerMilliseconds": 500})
    assert (again.lead.seconds, again.handler.seconds) == (8, 0.5)


@pytest.mark.parametrize("status", [{"leadSeconds": "x", "handlerMilliseconds": -1}, {"leadSeconds": 0}])
def test_a_status_that_somebody_has_edited_is_not_believed(status: dict[str, object]) -> None:
    assert (Crew(status).lead.seconds, Crew(status).handler.seconds) == (None, None)


def test_a_container_that_started_anew_does_not_teach_how_long_a_pod_takes() -> None:
    crew = Crew({})
    crew.take(worker("w", 1000, restarts=1), says(NOW))
    assert crew.lead.seconds is None


def test_a_worker_that_waited_for_redis_does_not_teach_either() -> None:
    """An outage of 20 minutes would have every later rush begun 20 minutes early."""
    crew, waits, young = Crew({}), worker("waits", 1000), worker("young", 5)
    crew.hold_up([waits, young], NOW)
    crew.take(waits, says(NOW))
    assert crew.lead.seconds is None
    crew.take(young, says(NOW))
    assert crew.lead.seconds == 5


def test_nonsense_teaches_nothing() -> None:
    crew = Crew({})
    for value in (float("nan"), float("inf"), -1.0):
        crew.take(worker("w"), says(value, total=value, count=value))
    crew.take(worker("w"), [])
    assert (crew.lead.seconds, crew.handler.seconds) == (None, None)


def test_who_has_not_claimed_is_asked_in_every_period_and_others_in_turn() -> None:
    crew, pods = Crew({}), [worker("old", ready=True), worker("new", 3)]
    assert [pod.name for pod in crew.to_ask(pods, NOW)] == ["old", "new"]
    crew.take(pods[0], says(NOW - 50))
    assert [pod.name for pod in crew.to_ask(pods, NOW + 2)] == ["new"]
    assert [pod.name for pod in crew.to_ask(pods, NOW + AGAIN_SECONDS)] == ["new", "old"]


def test_of_many_workers_each_gets_its_turn_though_all_others_hang() -> None:
    crew, pods = Crew({}), [worker(f"w{n:03}", ready=True) for n in range(200)]
    asked = [pod.name for period in range(4) for pod in crew.to_ask(pods, NOW + 2 * period)]
    assert set(asked) == {pod.name for pod in pods}
    assert len(asked) == 4 * MOST_AT_ONCE


def test_one_without_an_address_cannot_be_asked() -> None:
    assert Crew({}).to_ask([worker("w", address="")], NOW) == []


def test_nothing_stays_of_workers_that_are_gone() -> None:
    crew, pods = Crew({}), [worker("w", ready=True)]
    crew.to_ask(pods, NOW)
    crew.take(pods[0], says(NOW - 90, 1, 1))
    crew.hold_up([worker("v")], NOW)
    crew.fleet(pods, NOW)
    crew.fleet([], NOW)
    assert not any(
        (crew._asked_at, crew._claimed, crew._came, crew._held_up, crew.handler._told, crew.lead._known)
    )


def test_how_busy_a_worker_says_it_is() -> None:
    def said(value: float) -> int | None:
        return busy([("delayq_worker_busy_slots", {"queue": "orders"}, value)])

    assert [said(3), said(0), said(1e300), said(float("nan")), said(-1), busy([])] == [
        3,
        0,
        100_000,
        None,
        None,
        None,
    ]
