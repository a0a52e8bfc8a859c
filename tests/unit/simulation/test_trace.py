"""Files of tasks: what they may hold, and what is said of what they may not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulation import Arrival
from benchmarks.simulation.trace import WrongLine, read


def trace(*lines: str) -> tuple[list[Arrival], float | None]:
    return tuple(read(lines, "t.csv", handler_seconds=1.0, notice_seconds=20.0))  # type: ignore[return-value]


def test_a_table_with_a_heading() -> None:
    found, start = trace("count,due,handler_ms\n", "3,+10,250\n", "\n", ",+12.5,\n")
    assert start is None
    assert found == [Arrival(10.0, 0.25, 0.0, 3), Arrival(12.5, 1.0)]


def test_an_object_a_line() -> None:
    found, start = trace(
        '{"due": "+5", "scheduled": "+1", "handler_ms": 30}\n', '{"due": "+6", "count": 2}\n'
    )
    assert (found, start) == ([Arrival(5.0, 0.03, 1.0), Arrival(6.0, 1.0, 0.0, 2)], None)


@pytest.mark.parametrize(
    "due", ["2026-12-01T09:00:00Z", "2026-12-01T10:00:00+01:00", "1796115600000", "1796115600000.0"]
)
def test_instants_begin_a_notice_before_the_first_is_due(due: str) -> None:
    found, start = trace("due\n", f"{due}\n")
    assert (found, start) == ([Arrival(20.0, 1.0)], 1_796_115_580.0)


def test_a_number_is_an_instant_in_json_too() -> None:
    assert trace('{"due": 1796115600000}\n')[1] == 1_796_115_580.0


def test_what_is_scheduled_later_says_when_all_begins() -> None:
    found, start = trace("due,scheduled\n", "1796115600000,1796115000000\n", "1796115600500,1796115600400\n")
    assert start == 1_796_115_000.0
    assert found == [Arrival(600.0, 1.0, 0.0), Arrival(600.5, 1.0, pytest.approx(600.4))]  # type: ignore[arg-type]


HEADING = "expected a heading with due, and maybe scheduled, handler_ms, count; or JSON objects; got "
TIME = "expected a time like 2026-12-01T09:00:00Z, 1796115600000 (Unix milliseconds) or +12.5 (seconds), got "


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "t.csv: expected tasks, found none"),
        (["due"], "t.csv: expected tasks, found none"),
        (["2026-12-01T09:00:00Z"], f't.csv:1: {HEADING}"2026-12-01T09:00:00Z"'),
        (["", "when,count"], f't.csv:2: {HEADING}"when,count"'),
        (["due,due"], f't.csv:1: {HEADING}"due,due"'),
        (["due", "+1", "soon"], f't.csv:3: due: {TIME}"soon"'),
        (["due", "2026-12-01T09:00:00"], f't.csv:2: due: {TIME}"2026-12-01T09:00:00"'),
        (["due", "12"], f't.csv:2: due: {TIME}"12"'),
        (["due", "+-1"], f't.csv:2: due: {TIME}"+-1"'),
        (["due", "+inf"], f't.csv:2: due: {TIME}"+inf"'),
        (["due,count", "+1"], "t.csv:2: expected 2 columns, got 1"),
        (["due,count", "+1,many"], 't.csv:2: count: expected a number from 0 to 5,000,000, got "many"'),
        (["due,count", "+1,1.5"], 't.csv:2: count: expected a whole number, got "1.5"'),
        (
            ["due,handler_ms", "+1,-1"],
            't.csv:2: handler_ms: expected a number from 0 to 604,800,000, got "-1"',
        ),
        (
            ["due,scheduled", "+1,2026-12-01T09:00:00Z"],
            "t.csv:2: expected due and scheduled in the same way, got an instant and an offset",
        ),
        (
            ["due", "+1", "2026-12-01T09:00:00Z"],
            "t.csv:3: expected instants or offsets all through, got both",
        ),
        (['{"due": "+1"}', "+2"], 't.csv:2: expected a JSON object, got "+2"'),
        (
            ['{"due": "+1", "when": 1}'],
            't.csv:1: expected due, and maybe scheduled, handler_ms, count; got "when"',
        ),
        (['{"count": 1}'], "t.csv:1: expected due, and maybe scheduled, handler_ms, count; got no due"),
        (['{"due": null}'], f't.csv:1: due: {TIME}"None"'),
        (['{"due": true}'], f't.csv:1: due: {TIME}"True"'),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(lines: list[str], said: str) -> None:
    with pytest.raises(WrongLine) as error:
        trace(*(f"{line}\n" for line in lines))
    assert str(error.value) == said


def refusal(lines: list[str]) -> str:
    """What is said of lines; nothing of those that can be read."""
    try:
        read(lines, "t", handler_seconds=1.0, notice_seconds=20.0)
    except WrongLine as error:
        return str(error)
    return ""


@given(st.lists(st.text(max_size=30), max_size=5))
def test_no_text_does_worse_than_that(lines: list[str]) -> None:
    for first in ([], ["due,count\n"], ['{"due": "+1"}\n']):
        assert refusal([*first, *lines])[:2] in ("", "t:")


def test_a_part_of_a_task_is_refused_as_csv_and_as_json() -> None:
    for lines in (["due,count", "+1,1.5"], ['{"due": "+1", "count": 1.5}']):
        assert 'count: expected a whole number, got "1.5"' in refusal(lines)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=3))
def test_no_value_does_worse_than_that(value: object) -> None:
    for name in ("due", "scheduled", "handler_ms", "count"):
        line = json.dumps({"due": "+1", name: value})
        assert refusal([line])[:4] in ("", "t:1:")
