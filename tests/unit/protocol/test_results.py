"""Results as Python values: payloads and datetimes beside bytes and milliseconds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from delayq.protocol.envelope import JSON_TYPE, MAX_DEADLINE_MS, Task
from delayq.protocol.results import (
    Counts,
    DeadGroup,
    Failures,
    Rescheduled,
    Scheduled,
    State,
    TaskRow,
    TaskView,
)

AT_MS, AT = 1_764_000_000_123, datetime(2025, 11, 24, 16, 0, 0, 123_000, tzinfo=UTC)
LATER_MS, LATER = AT_MS + 60_000, datetime(2025, 11, 24, 16, 1, 0, 123_000, tzinfo=UTC)
VIEW = TaskView(
    *("order-7", State.SCHEDULED, LATER_MS, AT_MS, b'{"order":7}', JSON_TYPE, {}, Failures()),
    follow_up_due_ms=LATER_MS,
    deadline_ms=60_000,
)
TASK = Task("order-7", "orders", 1, 1, LATER_MS, AT_MS, b'{"order":7}', JSON_TYPE, {})


def test_a_task_shows_its_instants_as_datetimes_in_utc() -> None:
    assert (TASK.due, TASK.scheduled, TASK.expires, TASK.nominal) == (LATER, AT, None, None)
    occurrence = replace(TASK, deadline_ms=60_000, nominal_ms=AT_MS)
    assert (occurrence.expires, occurrence.nominal) == (LATER, AT)
    assert TASK.due.tzinfo is UTC


def test_a_stored_task_shows_its_payload_as_handlers_receive_it() -> None:
    assert VIEW.payload == TASK.payload == {"order": 7}
    assert replace(VIEW, body=b"%PDF", content_type="application/pdf").payload == b"%PDF"
    assert replace(VIEW, state=State.DONE, body=b"", content_type="").payload is None
    with pytest.raises(ValueError, match="Expecting value"):
        _ = replace(VIEW, body=b"order 7").payload


@pytest.mark.parametrize("state", State)
def test_a_stored_task_has_a_due_time_while_it_waits(state: State) -> None:
    view = replace(VIEW, state=state)
    waits = state in {State.SCHEDULED, State.RETRYING, State.PARKED}
    assert (view.due_ms, view.due) == ((LATER_MS, LATER) if waits else (None, None))
    assert (view.finished_ms, view.finished) == ((LATER_MS, LATER) if state is State.DONE else (None, None))
    assert (view.at, view.scheduled, view.expires, view.follow_up_due) == (LATER, AT, LATER, LATER)
    none = replace(view, deadline_ms=None, follow_up_due_ms=None)
    assert (none.expires, none.follow_up_due) == (None, None)


def test_other_results_show_their_instants_as_datetimes() -> None:
    assert Scheduled("a", AT_MS).due == AT
    assert Rescheduled("rescheduled", AT_MS).due == AT
    assert Rescheduled("changed", AT_MS).due is Rescheduled("not_found", 0).due is None
    assert TaskRow("a", State.DEAD, AT_MS, 9, Failures()).at == AT
    assert DeadGroup("no", 1, AT_MS, ("a",)).last == AT
    counts = Counts(AT_MS, 1, 0, 0, 0, 0, oldest_due_ms=LATER_MS, next_due_ms=None)
    assert (counts.now, counts.oldest_due, counts.next_due) == (AT, LATER, None)


def test_the_latest_due_time_that_an_envelope_holds_is_a_datetime() -> None:
    latest = replace(TASK, scheduled_ms=(1 << 47) - 1, deadline_ms=MAX_DEADLINE_MS)
    assert latest.expires is not None
    assert latest.expires.year == 6439
