"""Occurrences that are not stored yet: with those that the scanner stores, they are all that a model expects."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract.document import parse_schedule
from delayq.protocol import envelope
from delayq.protocol.results import ScheduleRecord, Selection
from delayq.schedules.plan import planned_at_once
from delayq.schedules.record import Definition, decode, encode
from delayq.schedules.times import Calendar
from delayq.schedules.unstored import MOST, unstored
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from delayq.contract.schedule import DelaySchedule

NOW = 1_893_456_000_000  # 2030-01-01T00:00:00Z
MINUTE, HOUR = 60_000, 3_600_000
DAY = 24 * HOUR


def record(name: str = "poll", cursor_ms: int = NOW, phase: str = "on", **spec: Any) -> ScheduleRecord:  # noqa: ANN401
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": name}}
    when = {} if "cron" in spec or "times" in spec else {"everySeconds": 60}
    schedule = parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, **when, **spec}})
    body = envelope.decode(encode(Definition(schedule, {})) + bytes(envelope.DUE_BYTES)).body
    return ScheduleRecord(f"@{name}", body, 1, phase, "client", cursor_ms)


def schedule_of(found: ScheduleRecord) -> DelaySchedule:
    definition = decode(found)
    assert definition is not None
    return definition.schedule


def due(*records: ScheduleRecord, within_ms: int = DAY, **chosen: Any) -> list[int]:  # noqa: ANN401
    return list(unstored(records, NOW, NOW + within_ms, Selection(**chosen)).due_ms)


def test_the_nightly_rush_of_tomorrow_is_there_at_its_time_in_its_zone() -> None:
    night: dict[str, Any] = {"cron": "0 2 * * *", "timeZone": "Asia/Kolkata"}  # 20:30 in UTC
    assert due(record("a", **night), record("b", **night)) == [NOW + 20 * HOUR + HOUR // 2] * 2
    assert due(record("a", **night), within_ms=20 * HOUR) == []


@given(st.integers(1, 400), st.integers(0, 7), st.integers(-HOUR, 2 * HOUR), st.integers(1, 5 * HOUR))
def test_what_is_stored_and_what_is_not_are_all_occurrences(
    period: int, jitter: int, cursor_ms: int, within_ms: int
) -> None:
    found = record(cursor_ms=NOW + cursor_ms, everySeconds=period, jitterSeconds=min(jitter, period - 1))
    every = (each.due_ms for each in Calendar(schedule_of(found)).after(max(NOW, NOW + cursor_ms)))
    assert due(found, within_ms=within_ms) == list(takewhile(lambda at_ms: at_ms <= NOW + within_ms, every))


def test_after_the_scanner_has_stored_some_the_others_remain() -> None:
    before = record(everySeconds=60)
    cursor_ms = planned_at_once(schedule_of(before), NOW, NOW + 10 * MINUTE).create[-1].nominal_ms
    after = due(record(cursor_ms=cursor_ms), within_ms=HOUR)
    assert due(before, within_ms=HOUR) == [NOW + n * MINUTE for n in range(1, 61)]
    assert after == [NOW + n * MINUTE for n in range(11, 61)]


@pytest.mark.parametrize(
    "nothing",
    [
        record(suspend=True),
        record(phase="deleting"),
        record(cursor_ms=253_402_300_799_000),
        record(times=["2029-12-31T23:59:59Z"]),
        ScheduleRecord("@poll", b"{}", 1, "on", "client", NOW),
        record(startTime="2031-01-01T00:00:00Z"),
        record(endTime="2029-01-01T00:00:00Z"),
    ],
)
def test_a_schedule_without_further_occurrences_adds_none(nothing: ScheduleRecord) -> None:
    assert due(nothing) == []


def test_a_kind_a_tag_and_due_times_select() -> None:
    mail = record("mail", task={"kind": "mail", "tags": ["night"]}, everySeconds=3600, jitterSeconds=1800)
    plain = record("plain", everySeconds=3600)
    assert len(due(mail, plain, kind="mail")) == len(due(mail, plain, tag="night")) == len(due(mail))
    assert due(mail, plain, tag="@plain") == due(plain)
    assert due(mail, plain, kind="other") == due(mail, plain, tag="night", kind="plain") == []
    for from_ms in (NOW - DAY, NOW + HOUR, NOW + 5 * HOUR + 1):
        chosen = {"due_from_ms": from_ms, "due_before_ms": NOW + 6 * HOUR}
        expected = [at for at in due(mail, plain) if from_ms <= at < NOW + 6 * HOUR]
        assert due(mail, plain, **chosen) == expected


def test_each_second_of_a_month_is_counted_as_far_as_the_bound_and_says_until_when() -> None:
    records = record("poll", everySeconds=1), record("daily", cron="0 2 * * *")
    found = unstored(records, NOW, NOW + 30 * DAY)
    last_ms = NOW + (MOST // 2 + 1) * 1000
    assert found.counted_until_ms == {"poll": last_ms}
    assert len(found.due_ms) == MOST // 2 + 30
    assert list(found.due_ms) == sorted(found.due_ms)
    assert found.due_by(NOW + 1000) == 1
