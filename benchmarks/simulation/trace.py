"""Tasks from a file: CSV with a heading, or one JSON object a line. Errors name file and line.

A line has `due`, and may have `scheduled` (since when it is in the queue; else from the start), `handler_ms` and
`count`. Times are ISO 8601 with a zone, Unix milliseconds, or seconds from the start like +12.5, the same all through.
"""

from __future__ import annotations

import csv
import json
from datetime import datetime
from math import floor, isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from delayq.contract.problems import quote

from benchmarks.simulation.tasks import MOST_TASKS, Arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

FIELDS: Final = ("due", "scheduled", "handler_ms", "count")
EXPECTED_TIME: Final = (
    "a time like 2026-12-01T09:00:00Z, 1796115600000 (Unix milliseconds) or +12.5 (seconds)"
)
LONGEST_HANDLER_MS: Final = 7 * 86_400_000
LATEST_SECONDS: Final = 1e11
"""The year 5138; and Unix milliseconds before 1973 are taken for what they most likely are, a mistake."""

Kind = Literal["instant", "offset"]


class Trace(NamedTuple):
    """What a file holds."""

    arrivals: list[Arrival]
    """Seconds from `start`."""
    start: float | None
    """Unix seconds; None when the file's times are offsets."""


class WrongLine(ValueError):
    """A line that cannot be used; the message names file and line."""


def read(lines: Iterable[str], name: str, *, handler_seconds: float, notice_seconds: float) -> Trace:
    """Read a trace; lines that say nothing of it have `handler_seconds`, and are known from the start.

    Which is an instant: `notice_seconds` before the first of them falls due.
    """
    arrivals, kinds = [], set[Kind]()
    for number, row in _rows(lines, name):
        try:
            arrival, kind = _arrival(row, handler_seconds)
        except ValueError as error:
            raise WrongLine(f"{name}:{number}: {error}") from None
        arrivals.append(arrival)
        kinds.add(kind)
        if len(kinds) > 1:
            raise WrongLine(f"{name}:{number}: expected instants or offsets all through, got both")
        if len(arrivals) > MOST_TASKS:
            raise WrongLine(f"{name}:{number}: expected at most {MOST_TASKS:,} tasks, got more")
    if not arrivals:
        raise WrongLine(f"{name}: expected tasks, found none")
    return Trace(arrivals, None) if kinds == {"offset"} else _shifted(arrivals, notice_seconds)


def _shifted(arrivals: list[Arrival], notice_seconds: float) -> Trace:
    start = floor(min(each.scheduled or each.due - notice_seconds for each in arrivals))
    moved = [
        each._replace(due=each.due - start, scheduled=each.scheduled and each.scheduled - start)
        for each in arrivals
    ]
    return Trace(moved, float(start))


def _rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the lines with their numbers, from 1."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        return
    number, line = first
    if line.lstrip().startswith("{"):
        yield number, _object(line, f"{name}:{number}")
        yield from ((number, _object(line, f"{name}:{number}")) for number, line in numbered)
        return
    heading = _cells(line, f"{name}:{number}")
    if "due" not in heading or not set(heading) <= set(FIELDS) or len(set(heading)) < len(heading):
        expected = "a heading with due, and maybe scheduled, handler_ms, count; or JSON objects"
        raise WrongLine(f"{name}:{number}: expected {expected}; got {quote(line.strip())}")
    for number, line in numbered:
        yield number, _columns(line, heading, f"{name}:{number}")


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise WrongLine(f"{where}: expected a JSON object, got {quote(line.strip())}")
    unknown = next((name for name in found if name not in FIELDS), None)
    if unknown is not None or "due" not in found:
        got = "no due" if unknown is None else quote(unknown)
        raise WrongLine(f"{where}: expected due, and maybe scheduled, handler_ms, count; got {got}")
    return found


def _columns(line: str, heading: list[str], where: str) -> Mapping[str, str]:
    cells = _cells(line, where)
    if len(cells) != len(heading):
        raise WrongLine(f"{where}: expected {len(heading)} columns, got {len(cells)}")
    return dict(zip(heading, cells, strict=True))


def _cells(line: str, where: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))]
    except csv.Error:
        raise WrongLine(f"{where}: expected comma-separated values, got {quote(line.strip())}") from None


def _arrival(row: Mapping[str, Any], handler_seconds: float) -> tuple[Arrival, Kind]:
    due, kind = _time("due", row["due"])
    scheduled, its_kind = (0.0, kind) if _absent(row, "scheduled") else _time("scheduled", row["scheduled"])
    if its_kind != kind:
        raise ValueError("expected due and scheduled in the same way, got an instant and an offset")
    if not _absent(row, "handler_ms"):
        handler_seconds = _number("handler_ms", row["handler_ms"], 0, LONGEST_HANDLER_MS) / 1000
    count = 1
    if not _absent(row, "count"):
        found = _number("count", row["count"], 0, MOST_TASKS)
        count = int(found)
        if count != found:
            raise ValueError(f"count: expected a whole number, got {quote(str(row['count']))}")
    return Arrival(due, handler_seconds, scheduled, count), kind


def _absent(row: Mapping[str, Any], name: str) -> bool:
    return row.get(name) is None or row[name] == ""


def _time(name: str, got: object) -> tuple[float, Kind]:
    """Return Unix seconds, or seconds from the start."""
    if isinstance(got, int | float) and not isinstance(got, bool):
        got = str(got)
    for read_one in _READERS:
        found = None if not isinstance(got, str) else read_one(got)
        if found is not None and isfinite(found[0]) and 0 <= found[0] < LATEST_SECONDS:
            return found
    raise ValueError(f"{name}: expected {EXPECTED_TIME}, got {quote(str(got))}")


def _offset(text: str) -> tuple[float, Kind] | None:
    return (float(text[1:]), "offset") if text.startswith("+") and _decimal(text[1:]) else None


def _epoch(text: str) -> tuple[float, Kind] | None:
    return (float(text) / 1000, "instant") if _decimal(text) and float(text) >= LATEST_SECONDS else None


def _iso(text: str) -> tuple[float, Kind] | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else (at.timestamp(), "instant")


def _decimal(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def _number(name: str, got: object, least: float, most: float) -> float:
    if isinstance(got, int | float) and not isinstance(got, bool):
        got = str(got)
    if not isinstance(got, str) or not _decimal(got) or not least <= float(got) <= most:
        raise ValueError(f"{name}: expected a number from {least:,} to {most:,}, got {quote(str(got))}")
    return float(got)


_READERS: Final[tuple[Callable[[str], tuple[float, Kind] | None], ...]] = (_offset, _epoch, _iso)
