"""delayq forecast on real queues: what it counts, what it says, and by which clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask, SyncClient
from delayq.contract.document import parse_schedule

from tests.redis.commands import answer, document, on
from tests.redis.state import NOW, State
from tools.reference.result_keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.redis.state import Shard

HOUR = 3_600_000
LATENESS = "  objective: {latenessMilliseconds: 10000}\n"
WORKERS = f"{LATENESS}  worker: {{concurrency: 10}}\n"
LIMITED = f"{WORKERS}  autoscaling: {{maxReplicas: 2, leadTimeSeconds: 5}}\n"
"""With workers of 10 slots that may begin 10 s late, one worker begins 100 tasks of 1 s each in time."""


@pytest.fixture(autouse=True)
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where it is five hours and a half later than in Greenwich, all year round."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def limited(tmp_path: Path) -> str:
    return document(tmp_path, 1, LIMITED)


def apply(client: SyncClient, name: str, **spec: Any) -> None:  # noqa: ANN401
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": name}}
    client.apply_schedule(parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, **spec}}))


def tasks(name: str, due_ms: int, count: int) -> dict[str, int]:
    return {f"{name}-{number}": due_ms for number in range(count)}


def test_a_day_is_shown_by_the_clock_on_the_wall(orders: Shard, limited: str) -> None:
    rush = NOW + 2 * HOUR + HOUR // 2  # 08:00 in Kolkata
    orders.seed(
        State(
            delayed=tasks("now", NOW + 1, 1) | tasks("rush", rush, 600) | tasks("late", NOW + 23 * HOUR, 7),
            retry=tasks("again", rush + HOUR - 1, 40),
        )
    )
    result = on(orders, "forecast", limited, "--handler-time", "1000ms")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "WHEN (UTC+05:30)  DUE                        WORKERS  LATE (at most 2 workers)",
        "until Tue 06:00     1  ▏                           1  5 s",
        "…",
        "Tue 08:00         640  ████████████████████        6  29 s",
        "…",
        "Wed 04:00           7  ▎                           1  -",
        (
            "648 tasks within 1d: 6 workers are needed from Tue 08:00 on; "
            "with at most 2 workers, tasks start up to 29 s late."
        ),
    ]
    assert result.stderr == (
        "note: computed with 1 s a task, 10 at a time in a worker, 5 s until a new worker claims, "
        "10 s of accepted lateness; without tasks that are scheduled from now on\n"
    )


def test_the_nightly_rush_of_tomorrow_is_in_the_forecast_and_in_counts_before_it_is_stored(
    orders: Shard, limited: str
) -> None:
    """At 02:00 in Kolkata, 20 h 30 min from now: the scanner stores it 10 to 20 minutes ahead."""
    night, rush = {"cron": "0 2 * * *", "timeZone": "Asia/Kolkata"}, NOW + 20 * HOUR + HOUR // 2
    with SyncClient(orders.server.url, queue="orders") as client:
        for number in range(300):
            apply(client, f"report-{number}", **night, task={"kind": "report"})
        for number in range(2):
            client.schedule(1, due_ms=rush, task_id=f"stored-{number}")
    result = on(orders, "forecast", limited, "--handler-time", "1000ms")
    [row] = [line.split() for line in result.stdout.splitlines() if line.startswith("Wed 02:00")]
    assert row[2] == "302"
    assert "4 workers are needed from Wed 02:00 on" in result.stdout
    assert "; with 300 occurrences of schedules, which are stored later;" in result.stderr
    reported = answer(orders, "forecast", limited, "--within", "48h")
    assert (reported["tasks"], reported["occurrences"], reported["counted_until"]) == (602, 600, {})
    until = ("--due-before", "2030-01-01T23:00:00+02:00")
    assert on(orders, "task", "count", limited, *until).stdout == (
        "2 tasks wait, and 300 occurrences of schedules, which are stored later\n"
    )
    assert answer(orders, "task", "count", limited, *until, "--kind", "report")["occurrences"] == 300
    assert answer(orders, "task", "count", limited, *until, "--kind", "mail")["occurrences"] == 0
    assert "occurrences" not in answer(orders, "task", "count", limited, "--due-from", "2030-01-01T00:00:00Z")


def test_a_schedule_with_too_many_occurrences_says_until_when_they_are_counted(
    orders: Shard, limited: str
) -> None:
    with SyncClient(orders.server.url, queue="orders") as client:
        apply(client, "poll", everySeconds=1)
    reported = answer(orders, "forecast", limited, "--within", "30d")
    assert reported["tasks"] == reported["occurrences"] == 100_000
    assert reported["counted_until"] == {"poll": "2030-01-02T03:46:41.000Z"}
    noted = on(orders, "forecast", limited, "--within", "30d").stderr
    assert "of the schedule poll: from 2030-01-02T03:46:41.000Z on, they are not counted" in noted


def test_overdue_tasks_have_a_row_of_their_own_and_need_workers_now(orders: Shard, limited: str) -> None:
    orders.seed(State(delayed=tasks("late", NOW - 4000, 300) | tasks("soon", NOW + 600_000, 2)))
    result = on(orders, "forecast", limited, "--handler-time", "1000ms", "--lead", "5s")
    _, overdue, soon, said = result.stdout.splitlines()
    assert overdue.split() == ["due", "300", "█" * 20, "3", "19", "s"]
    assert soon.split()[:4] == ["until", "Tue", "06:00", "2"]
    assert said.startswith("302 tasks within 1d: 3 workers are needed now; ")


def test_the_sentence_names_the_instant_where_it_is_known(orders: Shard, limited: str) -> None:
    for due, said in (
        ({}, "nothing waits in orders\n"),
        (
            {"a": NOW + 40 * HOUR},
            "nothing falls due in orders within 1d; the next of 1 task falls due in 40h\n",
        ),
        ({"one": NOW + 123_000}, "1 worker is needed from Tue 05:32:03 on"),
        (tasks("rush", NOW + 1_200_000, 600), "6 workers are needed from Tue 05:50 on"),
        (tasks("rush", NOW + 8 * HOUR + 754_000, 600), "6 workers are needed from Tue 13:42:34 on"),
    ):
        orders.seed(State(delayed=due))
        assert said in on(orders, "forecast", limited, "--handler-time", "1000ms").stdout


def test_json_has_all_spans_and_the_assumed_values(orders: Shard, tmp_path: Path) -> None:
    orders.seed(
        State(
            delayed=tasks("late", NOW - 4000, 3) | tasks("soon", NOW + 100_000, 2),
            processing={"running:7": NOW + 30_000},
        )
    )
    path = document(tmp_path, 1, f"{WORKERS}  autoscaling: {{}}\n")
    reported = answer(orders, "forecast", path, "--within", "4m")
    assert {key.removesuffix("_ms") for key in reported} | {
        key.removesuffix("_ms") for key in reported["spans"][0]
    } <= {key.removesuffix("_ms") for key in KEYS}
    spans = reported.pop("spans")
    assert reported == {
        "queue": "orders",
        "now_ms": NOW,
        "now": "2030-01-01T00:00:00.000Z",
        "until_ms": NOW + 240_000,
        "until": "2030-01-01T00:04:00.000Z",
        "tasks": 5,
        "occurrences": 0,
        "counted_until": {},
        "due": 3,
        "in_flight": 1,
        "workers": 1,
        "max_workers": 10,
        "late_ms": 4000,
        "objective_ms": 10_000,
        "concurrency": 10,
        "handler_ms": 1000.0,
        "lead_ms": 15_000,
        "assumed": ["handler_ms", "lead_ms"],
    }
    assert [(each["start_ms"] - NOW, each["tasks"], each["workers"], each["late_ms"]) for each in spans] == [
        (0, 3, 1, 4000),
        (60_000, 2, 1, 0),
        (120_000, 0, 0, 0),
        (180_000, 0, 0, 0),
    ]


def test_all_shards_are_counted_to_the_task_with_a_few_questions_each(orders: Shard) -> None:
    due = [NOW + number * 7919 % (24 * HOUR) for number in range(2000)] + [NOW + 5 * HOUR + 123_456] * 1000
    with SyncClient(orders.server.url, queue="orders", shards=3) as client:
        client.schedule_many([NewTask(None, due_ms=at) for at in due])
    orders.redis.config_resetstat()
    reported = answer(orders, "forecast", "orders", "--shards", "3")
    used: dict[str, Any] = orders.redis.info("commandstats")
    assert used["cmdstat_evalsha"]["calls"] + used.get("cmdstat_eval", {}).get("calls", 0) <= 3 * 11
    for span in reported["spans"]:
        assert span["tasks"] == sum(span["start_ms"] <= at < span["end_ms"] for at in due), span
    assert reported["tasks"] == 3000
    assert reported["assumed"] == ["concurrency", "max_workers", "handler_ms", "lead_ms"]


def test_without_autoscaling_the_workers_are_those_there_are(orders: Shard, tmp_path: Path) -> None:
    path = document(tmp_path, 1, f"{LATENESS}  worker: {{concurrency: 1, replicas: 3}}\n")
    orders.seed(State(delayed=tasks("rush", NOW + HOUR, 90)))
    result = on(orders, "forecast", path)
    assert "LATE (3 workers)" in result.stdout
    assert (
        "9 workers are needed from Tue 06:30 on; with 3 workers, tasks start up to 29 s late."
        in result.stdout
    )
    assert "note: assumed defaults: handler time (--handler-time)\n" in result.stderr
    what_if = on(orders, "forecast", path, "--max", "9", "--lead", "30.5s").stdout
    assert "9 workers are needed from Tue 06:30 on; the maximum of 9 workers is enough." in what_if


def test_workers_that_meet_the_objective_are_not_called_too_few(orders: Shard, tmp_path: Path) -> None:
    """The number of workers has a reserve; 6 of them begin the second half after 1 s, the objective."""
    spec = "  worker: {concurrency: 50}\n  autoscaling: {maxReplicas: 6, leadTimeSeconds: 5}\n"
    path = document(tmp_path, 1, f"  objective: {{latenessMilliseconds: 1000}}\n{spec}")
    orders.seed(State(delayed=tasks("rush", NOW + HOUR, 600)))
    said = on(orders, "forecast", path, "--handler-time", "1s").stdout.splitlines()
    assert said[-1] == (
        "600 tasks within 1d: the maximum of 6 workers is enough, and tasks start up to 1 s late; "
        "12 workers from Tue 06:30 on leave a reserve for handlers that take 10 % longer."
    )
    fewer = on(orders, "forecast", path, "--handler-time", "1s", "--max", "5").stdout
    assert (
        "12 workers are needed from Tue 06:30 on; with at most 5 workers, tasks start up to 2 s late."
        in fewer
    )


def test_options_that_cannot_be_are_refused(orders: Shard, limited: str) -> None:
    for option, value, said in (
        ("--within", "0s", "expected a time above 0 and up to 366d"),
        ("--within", "367d", "expected a time above 0 and up to 366d"),
        ("--handler-time", "0ms", "expected a time above 0"),
    ):
        result = on(orders, "forecast", limited, option, value)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: '{option}': {said}")
