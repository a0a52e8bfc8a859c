"""delayq task and counts: what they show of each state, and what they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.protocol.envelope import Further, encode, with_fields

from tests.redis.commands import EVERY_STATE, ISO_LATER, LATER, answer, document, on
from tests.redis.state import NOW, State, envelope

if TYPE_CHECKING:
    from pathlib import Path

    from tests.redis.state import Shard


def test_every_state_is_listed_relative_to_redis_now(orders: Shard) -> None:
    orders.seed(EVERY_STATE)
    states = ("scheduled", "retrying", "in_flight", "dead")
    listed = {state: on(orders, "task", "list", "orders", "--state", state).stdout for state in states}
    assert {state: text.split("\n")[1].split()[:3] for state, text in listed.items()} == {
        "scheduled": ["a", "in", "30m"],
        "retrying": ["b", "3s", "ago"],
        "in_flight": ["c", "in", "30s"],
        "dead": ["d", "9s", "ago"],
    }
    instants = {
        "scheduled": {"due_ms": LATER, "due": ISO_LATER},
        "in_flight": {"lease_expires_ms": NOW + 30_000, "lease_expires": "2030-01-01T00:00:30.000Z"},
        "dead": {"died_ms": NOW - 9000, "died": "2029-12-31T23:59:51.000Z"},
    }
    for state, named in instants.items():
        [row] = answer(orders, "task", "list", "orders", "--state", state)
        assert row | named == row
    orders.seed(EVERY_STATE.but(suspect={"e": (NOW - 4000) * 1000}))
    assert on(orders, "task", "list", "orders", "--state", "suspect").stdout.split()[:2] == ["ID", "BEGAN"]
    orders.seed(EVERY_STATE.but(attempts={"c": "1 2 boom"}))
    task = answer(orders, "task", "get", "orders", "c")
    assert (task["state"], task["token"], task["failures"], task["crashes"]) == ("in_flight", 7, 1, 2)
    shown = on(orders, "task", "get", "orders", "c").stdout
    assert "lease_expires  2030-01-01T00:00:30.000Z (in 30s)\n" in shown
    orders.seed(State(delayed={f"t-{n}": NOW + n for n in range(10)}))
    rows = answer(orders, "task", "list", "orders", "--limit", "2", "--offset", "3")
    assert [row["id"] for row in rows] == ["t-3", "t-4"]


def test_a_list_without_a_state_has_what_runs_then_what_waits_by_due_time_then_dead_letters(
    orders: Shard,
) -> None:
    orders.seed(
        EVERY_STATE.but(
            delayed={"a": LATER, "early": NOW - 5000},
            suspect={"e": (NOW - 4000) * 1000},
            parked={f"push 00001 {NOW + 1000:015d} p": 0},
        )
    )
    listed = on(orders, "task", "list", "orders")
    assert [line.split("  ")[0].split()[0] for line in listed.stdout.splitlines()] == [
        *("ID", "c", "e", "early", "b", "p", "a", "d")
    ]
    assert listed.stdout.splitlines()[0].split()[:3] == ["ID", "STATE", "TIME"]
    shown = {line.split()[0]: line.split()[1:] for line in listed.stdout.splitlines()}
    assert shown["c"][:4] == ["in_flight", "lease", "in", "30s"]
    assert shown["e"][:4] == ["suspect", "began", "4s", "ago"]
    assert shown["early"][:4] == ["scheduled", "due", "5s", "ago"]
    assert shown["b"][:4] == ["retrying", "due", "3s", "ago"]
    assert shown["p"][:4] == ["parked", "due", "in", "1s"]
    assert shown["d"][:4] == ["dead", "died", "9s", "ago"]
    assert listed.stderr == ""
    pages = [
        answer(orders, "task", "list", "orders", "--limit", "3", "--offset", at) for at in ("0", "3", "6")
    ]
    assert [[row["id"] for row in page] for page in pages] == [["c", "e", "early"], ["b", "p", "a"], ["d"]]
    assert [row["state"] for row in pages[0]] == ["in_flight", "suspect", "scheduled"]
    assert {"lease_expires", "lease_expires_ms"} < pages[0][0].keys()
    page = on(orders, "task", "list", "orders", "--limit", "3", "--offset", "3")
    counted = "3 due, 1 scheduled, 1 in_flight, 1 parked, 1 dead"
    assert page.stderr == f"note: tasks 4 to 6 of 7: {counted}; for the next page: --offset 6\n"


def test_a_filtered_list_without_a_state_has_tasks_of_all_states(orders: Shard) -> None:
    orders.seed(EVERY_STATE)
    found = on(orders, "task", "list", "orders", "--due-before", "2040-01-01T00:00:00Z")
    assert [line.split()[:2] for line in found.stdout.splitlines()[1:]] == [
        ["c", "in_flight"],
        ["b", "retrying"],
        ["a", "scheduled"],
        ["d", "dead"],
    ]
    assert not found.stderr


def test_get_shows_the_history_of_a_task_that_is_done(orders: Shard) -> None:
    entry = f"3 1500 {NOW - 9000} 3600"
    before = orders.seed(State(finished={"a": NOW - 5000}, finished_info={"a": entry}))
    assert answer(orders, "task", "get", "orders", "a") == {
        "id": "a",
        "state": "done",
        "finished_ms": NOW - 5000,
        "finished": "2029-12-31T23:59:55.000Z",
        "scheduled_ms": NOW - 9000,
        "scheduled": "2029-12-31T23:59:51.000Z",
        "late_ms": 1500,
        "attempts": 3,
    }
    shown = on(orders, "task", "get", "orders", "a").stdout
    assert "finished   2029-12-31T23:59:55.000Z (5s ago)\n" in shown
    assert "attempts   3\nlate       2s\n" in shown
    for verb in (("cancel", "--dry-run"), ("cancel",), ("reschedule", "--in", "1m")):
        result = on(orders, "task", verb[0], "orders", "a", *verb[1:])
        assert (result.exit_code, result.stderr.split()[1:3]) == (6, ["task", "a"])
    assert orders.whole() == before


def test_cancel_says_of_each_task_what_became_of_it(orders: Shard) -> None:
    before = orders.seed(EVERY_STATE)
    dry = on(orders, "task", "cancel", "orders", "a", "c", "nope", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (6, "would cancel a\n")
    errors = [line for line in dry.stderr.splitlines() if line.startswith("error")]
    assert [line.split()[2] for line in errors] == ["c", "nope"]
    assert orders.whole() == before
    result = on(orders, "task", "cancel", "orders", "a", "c", "d")
    assert (result.exit_code, result.stdout) == (5, "cancelled a\n")
    assert result.stderr == (
        "error: task c is in flight\nhint:  --running cancels its run, too\n"
        "error: task d is a dead letter: use delayq dlq redrive or delayq dlq purge\n"
    )
    assert orders.whole() == before.without("a", delayed={}, stats={"cancelled": 1})


def test_cancel_of_a_task_in_flight_says_that_its_follow_up_is_deleted(orders: Shard) -> None:
    before = orders.seed(EVERY_STATE.but(followups={"c": envelope(LATER)}))
    dry = on(orders, "task", "cancel", "orders", "c", "--dry-run")
    said = "the follow-up of c, which is in flight and continues\n"
    assert (dry.exit_code, dry.stdout, dry.stderr) == (0, f"would cancel {said}", "")
    assert orders.whole() == before
    result = on(orders, "task", "cancel", "orders", "c")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"cancelled {said}", "")
    assert orders.whole() == before.but(followups={})
    orders.seed(before)
    reported = answer(orders, "task", "cancel", "orders", "c", "a")
    assert [each["outcome"] for each in reported] == ["follow_up_cancelled", "cancelled"]
    assert answer(orders, "task", "cancel", "orders", "c", code=5) == [{"id": "c", "outcome": "in_flight"}]


def test_cancel_with_running_asks_the_worker_of_a_task_in_flight(orders: Shard) -> None:
    before = orders.seed(EVERY_STATE.but(followups={"c": envelope(LATER)}))
    dry = on(orders, "task", "cancel", "orders", "c", "a", "--running", "--dry-run")
    said = "the run of c: its worker ends it within a third of the lease\n"
    assert (dry.exit_code, dry.stdout, dry.stderr) == (0, f"would cancel {said}would cancel a\n", "")
    assert orders.whole() == before
    result = on(orders, "task", "cancel", "orders", "c", "--running")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"cancelled {said}", "")
    assert orders.whole() == before.but(followups={}, cancelling=frozenset({"c"}))
    assert answer(orders, "task", "get", "orders", "c")["cancelling"] is True
    many = on(orders, "task", "cancel", "orders", "--tag", "x", "--running")
    assert (many.exit_code, "--running: expected the IDs of tasks" in many.stderr) == (2, True)


def test_reschedule_moves_the_due_time_and_what_is_not_there_is_exit_code_6(orders: Shard) -> None:
    orders.seed(State(delayed={"a": NOW + 5}))
    result = on(orders, "task", "reschedule", "orders", "a", "--in", "30m")
    assert (result.exit_code, result.stdout) == (0, f"rescheduled a, due {ISO_LATER}\n")
    assert orders.whole().delayed == {"a": LATER}
    assert on(orders, "task", "reschedule", "orders", "a").exit_code == 2
    assert on(orders, "task", "reschedule", "orders", "a", "--in", "999d").exit_code == 5
    for verb in (["get"], ["cancel"], ["reschedule", "--in", "1s"]):
        result = on(orders, "task", verb[0], "orders", "nope", *verb[1:])
        assert result.exit_code == 6
        assert result.stderr.endswith("it has ended, was cancelled or purged, or never existed\n")


def test_counts_are_one_line_for_people_and_whole_for_programs_and_top_shows_queues_side_by_side(
    orders: Shard,
) -> None:
    orders.seed(EVERY_STATE)
    assert on(orders, "status", "orders").stdout == (
        "QUEUE   SCHEDULED  DUE  IN-FLIGHT  RETRYING  DEAD  OLDEST  NEXT-DUE\n"
        "orders          1    1          1         0     1      3s  in 30m\n"
    )
    counts = answer(orders, "status", "orders")
    assert counts["due_within"] == {"10s": 0, "1m": 0, "5m": 0, "1h": 1}
    assert (counts["now_ms"], counts["late_ms"], counts["next_due_ms"]) == (NOW, 3000, LATER)
    top = ("top", "orders", "mails", "--once", "--interval", "100ms")
    lines = on(orders, *top).stdout.splitlines()
    assert lines[0] == "             orders  mails"
    assert "due               1      0" in lines
    assert "oldest due       3s      -" in lines
    assert all(len(line) <= 80 for line in lines)
    assert [each["queue"] for each in answer(orders, *top)] == ["orders", "mails"]


def test_a_listing_takes_filters(orders: Shard) -> None:
    orders.seed(State(delayed={"report:us": LATER, "mail:us": LATER + 5, "mail:eu": LATER + 9}))
    found = answer(orders, "task", "list", "orders", "--due-from", ISO_LATER, "--offset", "1", "--limit", "1")
    assert [each["id"] for each in found] == ["mail:us"]
    assert answer(orders, "task", "list", "orders", "--tag", "x") == []
    mail = with_fields(encode(None, None, None)[0], Further("mail", 1, tags=("eu",))) + LATER.to_bytes(
        6, "big"
    )
    leases = {"mail:us:7": LATER, "report:us:8": LATER}
    orders.seed(State(processing=leases, tasks={"mail:us": mail, "report:us": envelope()}))
    for chosen in (("--tag", "eu"), ("--kind", "mail"), ("--due-from", ISO_LATER, "--tag", "eu")):
        found = answer(orders, "task", "list", "orders", "--state", "in_flight", *chosen)
        assert [each["id"] for each in found] == ["mail:us"]
    assert answer(orders, "task", "list", "orders", "--state", "in_flight", "--kind", "call") == []


def test_an_id_that_lacks_its_kind_and_a_misspelt_kind_are_answered_with_the_right_ones(
    orders: Shard, tmp_path: Path
) -> None:
    handler = '{python: {callable: "json:dumps"}, kinds: {report: {exec: {command: [cat]}}}}'
    path = document(tmp_path, 1, handler=handler)
    orders.seed(State(delayed={"report:us": LATER}))
    for verb, *more in (("get",), ("cancel",), ("cancel", "--dry-run"), ("reschedule", "--in", "1s")):
        found = on(orders, "task", verb, path, "us", *more)
        assert (found.exit_code, "did you mean report:us?" in found.stderr) == (6, True), found.output
        assert "did you mean" not in on(orders, "task", verb, path, "eu", *more).stderr
    selected = ("--due-before", ISO_LATER)
    for words in (
        ("count", path),
        ("cancel", path, *selected),
        ("reschedule", path, *selected, "--in", "1s"),
    ):
        found = on(orders, "task", *words, "--kind", "raport")
        assert (found.exit_code, "0 tasks" in found.stdout) == (0, True), found.output
        assert found.stderr == "note: the document has no kind raport: did you mean report?\n"
        assert "did you mean" not in on(orders, "task", *words, "--kind", "report", "--tag", "x").stderr


def test_an_occurrence_that_is_not_stored_may_be_a_later_one(orders: Shard) -> None:
    found = on(orders, "task", "get", "orders", "@nightly@2031-12-01T02:00:00Z")
    ahead = "an occurrence is stored about ten minutes ahead of its time"
    assert (found.exit_code, f"hint:  {ahead}; delayq cron next QUEUE" in found.stderr) == (6, True)


def test_an_empty_list_says_in_which_states_the_queue_has_tasks(orders: Shard, tmp_path: Path) -> None:
    handler = '{python: {callable: "json:dumps"}, kinds: {report: {exec: {command: [cat]}}}}'
    path = document(tmp_path, 1, handler=handler)
    orders.seed(EVERY_STATE.but(delayed={}))
    rest = "1 in_flight, 1 dead"
    for more, due in (((), "1 due, "), (("-o", "json"), "1 due, "), (("--kind", "report"), "")):
        where = f"other states of the queue: {due}{rest}"
        found = on(orders, "task", "list", path, "--state", "scheduled", *more)
        assert found.stderr == f"note: no such task with --state scheduled; {where}\n"
    assert on(orders, "task", "list", path, "--state", "scheduled", "--offset", "1").stderr == ""
    assert on(orders, "task", "list", path, "--state", "dead").stderr == ""
    orders.seed(State())
    assert on(orders, "task", "list", path).stderr == ""
    misspelt = on(orders, "task", "list", path, "--kind", "raport")
    assert misspelt.stderr == "note: the document has no kind raport: did you mean report?\n"


def test_count_takes_no_ids_and_due_tasks_are_listed_with_scheduled_and_retrying_ones(orders: Shard) -> None:
    expected = "error: expected --tag, --kind, --due-from or --due-before, got none of them\n"
    assert on(orders, "task", "count", "orders").stderr == expected
    due = on(orders, "task", "list", "orders", "--state", "due")
    assert (due.exit_code, "the first ones of scheduled and of retrying" in due.stderr) == (2, True)
    done = on(orders, "task", "list", "orders", "--state", "done")
    assert done.exit_code == 2
    assert "the history of spec.retention.finished has no list: delayq task get QUEUE ID" in done.stderr
