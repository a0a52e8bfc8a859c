"""The status of a DelaySchedule: what it says of times, runs and refusals, and that its page has every reason."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delayq.contract.document import parse_schedule, parse_schedule_spec
from delayq.protocol.results import ScheduleRecord
from delayq.scanner.schedule_status import Refusal, next_times, status
from delayq_operator.reconcile.unserved import REASONS

PAGE = (Path(__file__).parents[3] / "docs/reference/conditions.md").read_text().split("## DelaySchedule\n")[1]
NOW_MS = 1_772_000_000_000
RECORD = ScheduleRecord("@poll", b"", 3, "on", "kubernetes", NOW_MS, missed=2, skipped=1)


def reported(**more: Any) -> dict[str, tuple[str, str]]:  # noqa: ANN401 -- parts of a status
    made = status(1, {}, NOW_MS, **more)
    return {each["type"]: (each["status"], each["reason"]) for each in made["conditions"]}


def poll(**spec: Any) -> Any:  # noqa: ANN401 -- parts of a document
    return parse_schedule_spec("poll", {"queueRef": {"name": "orders"}, **({"everySeconds": 60} | spec)})


def test_every_reason_is_on_the_page_with_its_status() -> None:
    made = [
        reported(schedule=poll(), times_ms=[1]),
        reported(schedule=poll(suspend=True), suspended=True),
        reported(schedule=poll()),
        reported(refusal=Refusal("InvalidSpec", "spec.cron: no")),
        reported(refusal=Refusal("NameConflict", "schedule poll belongs to a client")),
        reported(refusal=Refusal("QueueFull", "schedule poll: it does not fit")),
        reported(schedule=poll(), record=replace(RECORD, cursor_ms=NOW_MS - 180_000), times_ms=[1]),
        *({"Accepted": (state, reason), "Ready": ("False", reason)} for reason, state in REASONS.items()),
    ]
    found = {(kind, reason, state) for each in made for kind, (state, reason) in each.items()}
    rows = re.findall(r"^\| `(\w+)` \| (`.+?`) \| (\w+) \|", PAGE, re.MULTILINE)
    assert found == {
        (kind, reason, state) for kind, cell, state in rows for reason in re.findall(r"`(\w+)`", cell)
    }


def test_a_suspended_schedule_has_no_times_and_others_have_five() -> None:
    assert next_times(poll(suspend=True), NOW_MS) == []
    assert next_times(poll(), NOW_MS) == [NOW_MS - NOW_MS % 60_000 + nth * 60_000 for nth in range(1, 6)]


def test_the_runs_of_before_stay_where_no_record_is_at_hand() -> None:
    last = {"last_id": "@poll@2026-02-25T06:13:00Z", "last_began_ms": NOW_MS + 5, "last_late_ms": 5}
    record = ScheduleRecord(**{**{f: getattr(RECORD, f) for f in RECORD.__dataclass_fields__}, **last})
    first = status(1, {}, NOW_MS, schedule=poll(), record=record)
    assert first["lastRun"] == {
        "nominalTime": "2026-02-25T06:13:00Z",
        "startTime": "2026-02-25T06:13:20.005Z",
        "latenessMilliseconds": 5,
    }
    assert first["runs"] == {"missed": 2, "skipped": 1}
    second = status(2, first, NOW_MS, schedule=poll())
    assert (second["lastRun"], second["runs"]) == (first["lastRun"], first["runs"])


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = status(1, {}, NOW_MS, schedule=poll(), times_ms=[1])
    second = status(2, first, NOW_MS + 60_000, refusal=Refusal("QueueFull", "x" * 5000))
    since = [each["lastTransitionTime"] for each in second["conditions"]]
    assert since == ["2026-02-25T06:13:20Z", "2026-02-25T06:14:20Z", "2026-02-25T06:13:20Z"]
    assert len(second["conditions"][1]["message"]) == 1024


def test_a_document_of_the_api_server_is_parsed_by_its_spec() -> None:
    stored = {
        "queueRef": {"name": "orders"},
        "everySeconds": 60,
        "jitterSeconds": 0,
        "misfire": {"policy": "RunOnce"},
    }
    assert parse_schedule_spec("poll", stored) == parse_schedule(
        {
            "apiVersion": "delayq.dev/v1alpha1",
            "kind": "DelaySchedule",
            "metadata": {"name": "poll"},
            "spec": {"queueRef": {"name": "orders"}, "everySeconds": 60},
        }
    )


@pytest.mark.parametrize("generation", [1, 7])
def test_what_was_observed_is_the_generation(generation: int) -> None:
    made = status(generation, {}, NOW_MS, schedule=poll())
    assert {made["observedGeneration"], *(each["observedGeneration"] for each in made["conditions"])} == {
        generation
    }
