"""Occurrences of all kinds of schedule, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import SpecError
from delayq.contract.document import parse_schedule, parse_schedule_spec
from delayq.contract.schedule import milliseconds
from delayq.schedules import times as times_of
from delayq.schedules import zones
from delayq.schedules.times import Calendar, checked, checking

if TYPE_CHECKING:
    from delayq.contract.schedule import DelaySchedule

HOUR_MS = 3_600_000
NEW_YEAR = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000


def calendar(name: str = "nightly", **spec: Any) -> Calendar:  # noqa: ANN401 -- fields of a document
    return checked(schedule(name, **spec))


def schedule(name: str = "nightly", **spec: Any) -> DelaySchedule:  # noqa: ANN401 -- fields of a document
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelaySchedule",
        "metadata": {"name": name},
        "spec": {"queueRef": {"name": "orders"}, **spec},
    }
    return parse_schedule(document)


def times(made: Calendar, after_ms: int = NEW_YEAR, count: int = 4) -> list[int]:
    return [each.nominal.at_ms - NEW_YEAR for each in islice(made.after(after_ms), count)]


def test_a_period_counts_from_its_anchor_with_any_change_of_clocks() -> None:
    assert times(calendar(everySeconds=90)) == [90_000, 180_000, 270_000, 360_000]
    anchored = calendar(everySeconds=3600, anchorTime="2030-01-01T00:10:00+01:00")
    assert times(anchored, count=2) == [600_000, 600_000 + HOUR_MS]
    assert times(anchored, NEW_YEAR + 600_000, 1) == [600_000 + HOUR_MS]


def test_a_list_is_sorted_and_each_instant_is_once() -> None:
    listed = calendar(
        times=["2026-01-01T02:00:00Z", "2026-01-01T01:00:00.4991Z", "2026-01-01T03:00:00+01:00"]
    )
    assert times(listed) == [HOUR_MS + 500, 2 * HOUR_MS]
    assert times(listed, NEW_YEAR + 2 * HOUR_MS) == []


def test_start_and_end_are_within_and_nothing_is_outside() -> None:
    bounded = {"startTime": "2026-01-01T02:00:00Z", "endTime": "2026-01-01T03:00:00Z"}
    assert times(calendar(cron="0 * * * *", **bounded), 0) == [2 * HOUR_MS, 3 * HOUR_MS]
    assert times(calendar(everySeconds=1800, **bounded), NEW_YEAR + 2 * HOUR_MS) == [9_000_000, 3 * HOUR_MS]


def test_jitter_is_the_same_for_the_same_occurrence_and_spreads_others() -> None:
    made, again, other = (calendar(name, cron="@daily", jitterSeconds=600) for name in ("a", "a", "b"))
    found, repeated, others = (
        [each.due_ms for each in islice(each.after(0), 200)] for each in (made, again, other)
    )
    assert found == repeated
    spread = [due % 86_400_000 for due in found]
    assert all(0 <= each <= 600_000 for each in spread)
    assert (min(spread) < 60_000, max(spread) > 540_000, found != others) == (True, True, True)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"cron": "0 0 1--100000000 * *"}, "day of the month: expected 1-31, L or LW, *, or a range"),
        ({"cron": "0 0 31 2 *"}, "spec.cron: expected a cron expression that matches some time"),
        ({"cron": "60 3 * * *"}, "spec.cron: minute: expected 0-59, *, or a range or step of these values"),
        (
            {"cron": "0 1,24 * * *"},
            'hour: expected 0-23, *, or a range or step of these values, such as 0-5 and */5, got "24"',
        ),
        ({"cron": "0 H * * *"}, 'got "H"'),
        ({"cron": "0 3 * * MON-XYZ"}, "day of the week: expected 0-7 or SUN-SAT, or as in 1#2 and 5L, "),
        ({"cron": "5/0 * * * *"}, 'minute: expected a step of 1 or more, got "5/0"'),
        (
            {"cron": "0 22-4 * * *"},
            'a range that begins with its lowest value, such as 22-23,0-4, got "22-4"',
        ),
        ({"cron": "7-60/10 * * * *"}, "minute: expected 0-59, "),
        (
            {"cron": "0 0 * NOV-FEB *"},
            "month: expected a range that begins with its lowest value, such as NOV-12,1-FEB",
        ),
        ({"cron": "0 0 0 * * *"}, "spec.cron: expected a cron expression of five fields"),
        ({"cron": "@every 5m"}, 'got "@every 5m": for a fixed interval, set everySeconds instead of cron'),
        ({"cron": "@reboot"}, 'got "@reboot": the words are @hourly, @daily,'),
        ({"cron": "* * * * ?"}, 'got "* * * * ?": write * instead of ?'),
        (
            {"cron": "0 0 12 * * ?"},
            "leave out the field of seconds or years; for seconds, set everySeconds instead of cron; write * instead",
        ),
        ({"cron": "CRON_TZ=UTC 0 3 * * *"}, 'got "CRON_TZ=UTC 0 3 * * *": set the zone in timeZone'),
        ({"cron": "TZ=UTC 0 3 * * *"}, "set the zone in timeZone"),
        ({"cron": "0\t3 * * *"}, "separate the fields with spaces, not with tabs"),
        ({"cron": "0 3 * * *\n"}, "leave out the space or line break around it"),
        ({"cron": "a b c redis://:password@host ? ?"}, "got text"),
        ({"cron": "* " * 2000}, "spec.cron: expected a cron expression of five fields"),
        *(
            (
                {"cron": "@daily", "timeZone": name},
                f"spec.timeZone: expected a time zone of the IANA database, {rest}",
            )
            for name, rest in {
                **{
                    name: f'such as Europe/Lisbon, got "{name}"'
                    for name in (
                        "Mars/Olympus",
                        "localtime",
                        "posixrules",
                        "Factory",
                        "right/UTC",
                        "posix/Cuba",
                    )
                },
                "europe/lisbon": 'such as Europe/Lisbon, got "europe/lisbon": did you mean Europe/Lisbon?',
            }.items()
        ),
        (
            {"cron": "@daily", "timeZone": "../../etc/passwd"},
            "spec.timeZone: expected the name of a time zone",
        ),
        (
            {"times": ["2026-01-01T00:00:00Z"] * 10_000},
            "spec.times: expected a list of 1 to 1000 items, got 10000",
        ),
        ({"times": ["2026-02-30T00:00:00Z"]}, "spec.times[0]: expected a day that exists"),
        ({"times": ["2026-01-01T00:00:00"]}, "spec.times[0]: expected an instant with its zone"),
        (
            {"cron": "@daily", "startTime": "2026-01-02T00:00:00Z", "endTime": "2026-01-01T00:00:00Z"},
            "endTime must not be before startTime",
        ),
        ({"everySeconds": 60, "jitterSeconds": 60}, "jitterSeconds must be less than everySeconds"),
        (
            {"cron": "*/5 * * * *", "jitterSeconds": 300},
            "spec.jitterSeconds: expected less than the shortest time between two occurrences, 300, got 300",
        ),
        ({"everySeconds": 60, "cron": "@daily"}, "expected exactly one of cron, everySeconds, times"),
        ({"everySeconds": 60, "timeZone": "UTC"}, "timeZone needs cron"),
        ({"everySeconds": 60, "misfire": {"policy": "Skip"}}, "policy Skip needs maxLatenessSeconds"),
        ({"everySeconds": 60, "misfire": {"maxRuns": 3}}, "maxRuns needs policy RunAll"),
        ({"everySeconds": 60, "task": {"version": 2}}, "version needs kind"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError) as refused:
        calendar(**spec)
    assert says in str(refused.value)


def test_the_check_of_a_jitter_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes 500 occurrences, which takes 15 ms: a wake must not be late by that."""
    monkeypatch.setattr(times_of, "SLICE_SECONDS", -1)
    steps = checking(schedule(cron="*/5 * * * *", jitterSeconds=299))
    assert sum(1 for _ in steps) == times_of.LOOKED_AT


def test_every_zone_of_the_database_is_accepted_as_written_and_has_its_file() -> None:
    assert len(zones.names()) > 500
    for name in zones.names():
        assert times(calendar(cron="@hourly", timeZone=name), count=1)


def test_a_schedule_that_was_stored_with_a_name_of_the_machine_keeps_running() -> None:
    spec = {"queueRef": {"name": "orders"}, "cron": "@daily", "timeZone": "Factory"}
    assert next(Calendar(parse_schedule_spec("stored", spec)).after(0)).due_ms == 86_400_000


def test_a_time_with_nanoseconds_is_rounded_up_to_a_millisecond() -> None:
    start = "2026-01-01T00:00:00.000000001Z"
    assert milliseconds(start) == milliseconds("2026-01-01T00:00:00.001Z")
    assert milliseconds("2026-01-01T00:00:00.000000000Z") == milliseconds("2026-01-01T00:00:00Z")
    longest = "2026-01-01T00:00:00.999999999+01:00"
    assert parse_schedule_spec("a", {"queueRef": {"name": "q"}, "times": [start, longest]}).spec.times
