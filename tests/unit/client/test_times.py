"""Each way to give a time becomes the same in milliseconds; what could mean two things is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from delayq import InvalidDueTime, InvalidTask, NewTask, SyncClient
from delayq.client.encoding import TaskEncoder
from delayq.contract import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

DUE = datetime(2100, 1, 1, tzinfo=UTC)
DUE_MS = 4_102_444_800_000


def encoded(*, debounces: bool = False, **fields: Any) -> Any:  # noqa: ANN401 -- of NewTask
    return TaskEncoder(Limits()).prepare(
        NewTask(None, task_id="a", **fields), iter(["b"]), debounces=debounces
    )


@pytest.mark.parametrize(
    ("given", "in_ms"),
    [
        ({}, {"delay_ms": 0}),
        ({"delay": "1m30s"}, {"delay_ms": 90_000}),
        ({"delay": "250ms"}, {"delay_ms": 250}),
        ({"delay": timedelta(microseconds=1)}, {"delay_ms": 1}),
        ({"delay": timedelta(0)}, {"delay_ms": 0}),
        ({"due": DUE}, {"due_ms": DUE_MS}),
        ({"due": DUE + timedelta(microseconds=1)}, {"due_ms": DUE_MS + 1}),
        ({"due": DUE.astimezone(timezone(timedelta(hours=5, minutes=45)))}, {"due_ms": DUE_MS}),
        ({"due": datetime(1969, 1, 1, tzinfo=UTC)}, {"due_ms": 0}),
        ({"delay": "1s", "deadline": "2h"}, {"delay_ms": 1000, "deadline_ms": 7_200_000}),
        ({"due_ms": DUE_MS, "deadline": timedelta(hours=2)}, {"due_ms": DUE_MS, "deadline_ms": 7_200_000}),
    ],
)
def test_words_and_milliseconds_are_stored_alike(given: dict[str, Any], in_ms: dict[str, Any]) -> None:
    assert encoded(**given) == encoded(**in_ms)


def test_a_debounce_bounds_the_delay_in_every_form() -> None:
    expected = encoded(delay_ms=60_000, debounce_ms=600_000, debounces=True)
    assert encoded(delay="1m", debounce="10m", debounces=True) == expected
    with pytest.raises(
        InvalidTask, match="expected at least the delay of 600000, which it bounds, got 60000"
    ):
        encoded(delay="10m", debounce="1m", debounces=True)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"delay": 30}, 'delay: expected a duration like "30m", or a timedelta, got 30; did you mean "30s"?'),
        ({"delay": 1.5}, 'delay: expected a duration like "30m", or a timedelta, got 1.5'),
        ({"delay": "30"}, "delay: expected a duration like .*, did you mean 30s or 30ms?"),
        ({"delay": timedelta(seconds=-1)}, "delay: expected 0 or more"),
        ({"due": datetime(2100, 1, 1)}, "due: expected a datetime with its zone"),  # noqa: DTZ001 -- on purpose
        ({"due": DUE_MS}, "due: expected a datetime with its zone, got 4102444800000"),
        ({"delay": "1s", "delay_ms": 1000}, "expected at most one of delay, due, delay_ms and due_ms"),
        ({"delay": "1s", "due": DUE}, "expected at most one of delay, due, delay_ms and due_ms"),
        ({"delay_ms": 1, "due_ms": DUE_MS}, "expected at most one of delay_ms and due_ms, got both"),
        ({"deadline": 5}, 'deadline: expected a duration like "30m"'),
    ],
)
def test_what_could_mean_two_things_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidDueTime, match=why):
        encoded(**given)


def test_a_deadline_is_given_once() -> None:
    with pytest.raises(InvalidTask, match="expected at most one of deadline and deadline_ms, got both"):
        encoded(deadline="5s", deadline_ms=5000)


CLIENT: Any = SyncClient(queue="orders")  # without a connection


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: CLIENT.reschedule_many(tag="x", shift=5), 'shift: .*, got 5; did you mean "5s"'),
        (lambda: CLIENT.reschedule_many(tag="x", due=DUE, shift="1s"), "exactly one of due and shift"),
        (
            lambda: CLIENT.reschedule_many(tag="x", due=DUE, due_ms=1),
            "at most one of due and due_ms, got both",
        ),
        (lambda: CLIENT.cancel_many(due_from=DUE_MS), "due_from: expected a datetime with its zone"),
        (lambda: CLIENT.dlq_purge(["a"], before=DUE_MS), "before: expected a datetime with its zone"),
        (lambda: type(CLIENT)(queue="orders", deadline=5), 'deadline: expected a duration like "30m"'),
    ],
)
def test_calls_about_many_tasks_refuse_it_too(call: Callable[[], object], why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        call()
