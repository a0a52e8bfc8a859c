"""When a queue is reconciled for what its scanners say: at once for words, seldom for numbers, never for nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from delayq_operator.scrape.backlog import Backlog, UnknownKind
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS, BacklogCache
from delayq_operator.scrape.changes import NUMBERS_SECONDS
from delayq_operator.scrape.shards import Down, ShardMap, Shards

NOW = 1_800_000_000.0
ALLOWED = 60.0
BUSY = Backlog(
    read_at=NOW, due=500, scheduled=900, in_flight=8, oldest_due_at=NOW - 1, whole=True, redis_up=True
)


def heard(news: BacklogCache, at: float, erased: int = 0, **change: Any) -> float | None:  # noqa: ANN401 -- fields of Backlog
    return news.take(replace(BUSY, read_at=NOW + at, **change), erased, ALLOWED)


@pytest.fixture
def news() -> BacklogCache:
    """Of a queue that was heard of for the first time."""
    news = BacklogCache()
    assert heard(news, 0) == 0
    return news


def test_numbers_alone_wake_once_in_a_while(news: BacklogCache) -> None:
    due_at = [
        at + wait for at in (5, 10, 15, 20) if (wait := heard(news, at, due=500 + 100 * at)) is not None
    ]
    assert due_at == [NUMBERS_SECONDS] * 2 + [2 * NUMBERS_SECONDS] * 2
    assert heard(news, -3600, due=900) == NUMBERS_SECONDS, "a clock that is put back"


def test_a_slow_drift_is_reported_in_the_end_and_each_erased_shard_at_once(news: BacklogCache) -> None:
    waits = [heard(news, 5.0 * n, oldest_due_at=NOW - 1 + 2 * n) for n in range(1, 5)]
    assert waits == [None, None, 0.0, None]
    assert [heard(news, 21, 3), heard(news, 22, 3), heard(news, 23, 0)] == [0, None, None]
    assert news.erased == 3


def test_other_kinds_of_as_many_parked_tasks_are_reported_as_seldom_as_numbers(news: BacklogCache) -> None:
    one, other = UnknownKind("push", 1, 9, None), UnknownKind("push", 2, 9, None)
    waits = [
        heard(news, at, parked=9, unknown_kinds=(kind,)) for at, kind in enumerate((one, one, other, other))
    ]
    assert waits == [0, None, NUMBERS_SECONDS - 2, None]


@pytest.mark.parametrize(
    ("field", "same", "another"),
    [
        ("due", 503, 560),
        ("in_flight", 8, 9),
        ("dead", 0, 1),
        ("next_due_at", NOW + 63, NOW + 90),
        ("next_due_at", NOW + 60, None),
        ("oldest_due_at", NOW - 4, NOW + 6),
    ],
)
def test_a_number_counts_as_another_when_a_person_would_say_so(
    field: str, same: float, another: float | None
) -> None:
    news, changes = BacklogCache(), list[dict[str, Any]]([{}, {field: same}, {field: another}])
    waits = [heard(news, at, **{"next_due_at": NOW + 60, **change}) for at, change in enumerate(changes)]
    assert waits == [0, None, NUMBERS_SECONDS - 2]


@pytest.mark.parametrize(
    "change",
    [
        {"redis_up": False},
        {"risks": ("evicts",)},
        {"whole": False},
        {"due": 0, "oldest_due_at": None},
        {"shards": Shards(shard_map=ShardMap(2, 1, 1, 4))},
        {"shards": Shards(down=(Down(1, "timeout", ""),))},
    ],
)
def test_a_change_that_a_message_shows_wakes_at_once_and_once(
    news: BacklogCache, change: dict[str, Any]
) -> None:
    assert heard(news, 2, **change) == 0
    assert heard(news, 4, **change) is None
    assert heard(news, 6) == 0


def test_a_shard_that_stays_away_wakes_once_more_when_it_is_no_fail_over_any_more(news: BacklogCache) -> None:
    found = [
        (heard(news, at, whole=False), news.last is not None and news.last.blind) for at in range(5, 40, 5)
    ]
    assert [each for each in found if each[0] is not None] == [(0, False), (0, True)]
    assert found[3][1], "20 s after the last whole look"
    heard(news, 40)
    assert news.last is not None
    assert not news.last.blind


def test_a_queue_near_its_objective_does_not_turn_with_every_reading(news: BacklogCache) -> None:
    """It is late at once, and on time again when nothing was late for a while."""
    late, on_time = {"oldest_due_at": NOW - 90}, {"due": 0, "oldest_due_at": None}
    found = []
    assert heard(news, 1, oldest_due_at=NOW - 90) == 0
    for at in range(2, 40, 2):
        heard(news, at, **(late if at < 20 and at % 4 else on_time))
        assert news.last is not None
        found.append(news.last.late(ALLOWED))
    assert found == [True] * 14 + [False] * 5, "the last late one was at 18 s"


def test_a_failure_wakes_no_reconciliation_before_the_last_reading_is_too_old(news: BacklogCache) -> None:
    assert news.fail("refused", NOW + 5) is None
    assert news.fresh(NOW + 5) is not None
    assert news.fail("refused", NOW + FRESH_SECONDS + 1) == 0
    assert news.fresh(NOW + FRESH_SECONDS + 1) is None
    assert news.fail("refused", NOW + 60) is None
    assert heard(news, 65) == 0
    assert news.read_error == ""


def test_failures_that_take_turns_wake_as_seldom_as_numbers() -> None:
    """The image's author chooses the answer."""
    news = BacklogCache()
    waits = [news.fail(f"HTTP {302 + n % 2}", NOW + 5 * n) for n in range(4)]
    assert waits == [0, NUMBERS_SECONDS - 5, NUMBERS_SECONDS - 10, 2 * NUMBERS_SECONDS - 15]
