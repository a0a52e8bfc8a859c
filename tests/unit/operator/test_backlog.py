"""Readings of scanners, in the text that scanners really export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import metrics as scanner_metrics
from delayq.values import Counts
from delayq_operator.backlog import Backlog, Reading, backlog
from delayq_operator.metrics import samples

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from delayq.contract.metrics import DurabilityRisk
    from delayq_operator.objects import Sample

NOW = 1_800_000_000.0
NOW_MS = 1_700_000_000_000  # Redis' clock, which is another


def counts(**tasks: Any) -> Counts:  # noqa: ANN401 -- the fields of Counts
    none: dict[str, Any] = dict.fromkeys(("delayed", "retry", "processing", "dlq", "overdue"), 0)
    return Counts(**{**none, "now_ms": NOW_MS, "oldest_due_ms": None, "next_due_ms": None, **tasks})


def scanner(
    led: Mapping[int, bool],
    risks: Collection[DurabilityRisk] | None = (),
    **tasks: Any,  # noqa: ANN401
) -> list[Sample]:
    """What a scanner exports; the same counts for each shard it leads."""
    known = {shard: counts(**tasks) for shard, leads in led.items() if leads and risks is not None}
    text = scanner_metrics.render(
        lambda: [
            *scanner_metrics.queue_families("orders", led, known),
            *scanner_metrics.backend_families("orders", risks),
        ]
    )
    return list(samples(text.decode()))


def read(*scanners: list[Sample]) -> Backlog:
    return backlog(Reading(scanners), NOW)


BUSY: dict[str, Any] = {
    "delayed": 10,
    "retry": 4,
    "processing": 3,
    "dlq": 2,
    "overdue": 5,
    "oldest_due_ms": NOW_MS - 9_000,
    "next_due_ms": NOW_MS + 60_000,
}


def test_one_leader_tells_everything() -> None:
    assert read(scanner({0: True}, **BUSY)) == Backlog(
        read_at=NOW,
        due=5,
        scheduled=9,
        in_flight=3,
        dead=2,
        oldest_due_at=NOW - 9,
        next_due_at=NOW + 60,
        whole=True,
        redis_up=True,
    )


def test_shards_add_up_and_the_extremes_are_those_of_all() -> None:
    late = {**BUSY, "oldest_due_ms": NOW_MS - 30_000, "next_due_ms": NOW_MS + 5_000}
    found = read(scanner({0: True, 1: False}, **BUSY), scanner({0: False, 1: True}, **late))
    assert (found.due, found.scheduled, found.in_flight, found.dead) == (10, 18, 6, 4)
    assert (found.oldest_due_at, found.next_due_at, found.whole) == (NOW - 30, NOW + 5, True)


def test_a_standby_adds_nothing() -> None:
    assert read(scanner({0: True}, **BUSY), scanner({0: False})) == read(scanner({0: True}, **BUSY))


def test_two_leaders_of_a_shard_are_counted_once() -> None:
    """For an instant after a leader came back, both say that they lead."""
    assert read(scanner({0: True}, **BUSY), scanner({0: True}, **BUSY)).due == 5


def test_a_shard_without_a_leader_makes_the_reading_incomplete() -> None:
    """Its tasks are missing: fewer numbers must not look like fewer tasks."""
    found = read(scanner({0: True, 1: False}, **BUSY), scanner({0: False, 1: False}))
    assert (found.whole, found.redis_up, found.due) == (False, True, 5)


def test_nothing_waits() -> None:
    """next_due is NaN then, and the oldest has been due for 0 seconds."""
    found = read(scanner({0: True, 1: True}))
    assert (found.oldest_due_at, found.next_due_at, found.whole) == (None, None, True)


def test_one_of_two_shards_waits() -> None:
    waiting, idle = scanner({0: True, 1: False}, **BUSY), scanner({0: False, 1: True})
    assert read(waiting, idle).next_due_at == NOW + 60


def test_a_scanner_without_redis_says_nothing_but_that() -> None:
    found = read(scanner({0: True}, risks=None, **BUSY))
    assert found == Backlog(read_at=NOW, whole=False, redis_up=False)


def test_one_scanner_that_reaches_redis_is_enough() -> None:
    assert read(scanner({0: False}, risks=None), scanner({0: True}, **BUSY)).redis_up


@pytest.mark.parametrize(
    ("risks", "holding"),
    [
        ((), ()),
        (("evicts",), ("evicts",)),
        (("unknown", "append_only_off"), ("append_only_off", "unknown")),
    ],
)
def test_risks_are_those_that_are_one(risks: Collection[DurabilityRisk], holding: tuple[str, ...]) -> None:
    assert read(scanner({0: True}, risks)).risks == holding


def test_no_answer_at_all() -> None:
    assert read() == Backlog(read_at=NOW)


# --- What is worth a reconciliation.

QUIET = read(scanner({0: True}, delayed=3, next_due_ms=NOW_MS + 60_000))


@pytest.mark.parametrize("off", [-2.0, 0.0, 2.0])
def test_the_same_again_is_no_news(off: float) -> None:
    later = backlog(Reading([scanner({0: True}, delayed=3, next_due_ms=NOW_MS + 60_000)]), NOW + off)
    assert not later.is_news(QUIET)


@pytest.mark.parametrize(
    "other",
    [
        scanner({0: True}, delayed=4, next_due_ms=NOW_MS + 60_000),
        scanner({0: True}, delayed=3, next_due_ms=NOW_MS + 90_000),
        scanner({0: True}, ["evicts"], delayed=3, next_due_ms=NOW_MS + 60_000),
        scanner({0: True}, None),
        scanner({0: False}),
    ],
)
def test_anything_else_is_news(other: list[Sample]) -> None:
    assert read(other).is_news(QUIET)


def test_what_is_due_is_news_every_time_for_it_gets_later() -> None:
    busy = read(scanner({0: True}, **BUSY))
    assert busy.is_news(busy)
    assert QUIET.is_news(busy)


def test_the_first_reading_is_news() -> None:
    assert QUIET.is_news(None)
