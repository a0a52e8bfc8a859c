"""The tables of docs/explanation/schedules.md are what the code computes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from delayq.contract.document import parse_schedule
from delayq.schedules.plan import planned
from delayq.schedules.times import Calendar

PAGE = Path(__file__).parents[3] / "docs/explanation/schedules.md"
DAY = timedelta(days=1)


def rows(first_column: str) -> list[list[str]]:
    """The table with this first heading, without its head."""
    lines = PAGE.read_text().splitlines()
    at = next(nth for nth, line in enumerate(lines) if line.startswith(f"| {first_column} |"))
    table = lines[at + 2 :]
    end = next(nth for nth, line in enumerate(table) if not line.startswith("|"))
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table[:end]]


def schedule(**spec: Any) -> Any:  # noqa: ANN401
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": "of-the-page"}}
    return parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, **spec}})


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def between(calendar: Calendar, first: datetime, end: datetime) -> list[datetime]:
    times = (each.nominal.at_ms for each in calendar.after(ms(first) - 1))
    return [datetime.fromtimestamp(at / 1000, UTC) for at in takewhile(lambda at: at < ms(end), times)]


def test_what_runs_on_days_on_which_clocks_change() -> None:
    found = rows("cron")
    assert len(found) == 8
    for cron, zone, day, gap, overlap, runs in found:
        changes = {name: value for name, value in (("gap", gap), ("overlap", overlap)) if value}
        spec = {"cron": cron, "timeZone": zone, **({"daylightSaving": changes} if changes else {})}
        begins = datetime.fromisoformat(day).replace(tzinfo=UTC)
        found_runs = between(Calendar(schedule(**spec)), begins, begins + DAY)
        assert " ".join(f"{at:%H:%M}" for at in found_runs) == runs, (cron, day)


async def test_what_begins_after_an_outage() -> None:
    found = rows("misfire")
    assert len(found) == 6
    midnight = datetime(2026, 12, 1, tzinfo=UTC)
    for misfire, begin, missed in found:
        of = schedule(cron="0 * * * *", misfire=yaml.safe_load(misfire.partition("`")[0]))
        plan = await planned(
            of, ms(midnight + timedelta(minutes=30)), ms(midnight + timedelta(hours=5, minutes=10))
        )
        past = [datetime.fromtimestamp(due.nominal_ms / 1000, UTC) for due in plan.create]
        now = midnight + timedelta(hours=5, minutes=10)
        assert " ".join(f"{at:%H}" for at in past if at <= now) == begin, misfire
        assert plan.missed == int(missed), misfire
