"""delayq task and dlq with --tag and others: what they select, ask, show and change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.cli.bulk import ALL_OF_KIND

from tests.redis.commands import answer, on
from tests.redis.state import NOW, State
from tests.redis.test_tags import EVERY_HOME, tagged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.redis.state import Shard

CANCEL = ("task", "cancel", "orders")
CHANGES = (
    ("task reschedule", "--in", "1s", "--yes"),
    ("task cancel", "--yes"),
    ("dlq purge", "--yes"),
    ("dlq redrive",),
)
NUMBERS = {"tasks": 4, "follow_ups": 0, "in_flight": 1, "dead": 1, "too_far": 0}


def test_count_and_dry_run_say_what_is_selected_and_change_nothing(orders: Shard) -> None:
    before = orders.seed(EVERY_HOME)
    counted = on(orders, "task", "count", "orders", "--tag", "x")
    assert counted.stdout == "4 tasks wait (left alone: 1 in flight, 1 dead)\n"
    assert answer(orders, "task", "count", "orders", "--tag", "x") == NUMBERS
    assert answer(orders, "task", "count", "orders", "--due-from", "2030-01-01T00:00:00.006Z")["tasks"] == 1
    dry = on(orders, "task", "cancel", "orders", "--tag", "x", "--dry-run")
    assert dry.stdout == "would cancel 4 tasks (left alone: 1 in flight, 1 dead); nothing changed\n"
    dry = on(orders, "task", "reschedule", "orders", "--tag", "x", "--later", "1h", "--dry-run")
    assert dry.stdout.startswith("would reschedule 4 tasks by 1h later (left alone")
    assert orders.whole() == before


def test_cancel_asks_first_and_tells_what_it_did(orders: Shard) -> None:
    before = orders.seed(EVERY_HOME)
    asked = on(orders, "task", "cancel", "orders", "--tag", "x")
    assert asked.exit_code == 2
    assert "cancel 4 tasks of queue orders? stdin is not a terminal; pass --yes" in asked.stderr
    assert orders.whole() == before
    done = answer(orders, "task", "cancel", "orders", "--tag", "x", "--yes")
    assert done == {**NUMBERS, "dry_run": False}
    assert sorted(orders.whole().envelopes) == ["dead", "other", "running"]
    nothing = on(orders, "task", "cancel", "orders", "--tag", "none")
    assert (nothing.exit_code, nothing.stdout) == (0, "cancelled 0 tasks\n")


def test_reschedule_sets_or_shifts_due_times(orders: Shard) -> None:
    tasks = dict.fromkeys("ab", tagged("x"))
    orders.seed(State(delayed={"a": NOW + 5000, "b": NOW + 6000}, tasks=tasks, tags={"x a": 0, "x b": 0}))
    verb = ("task", "reschedule", "orders", "--tag", "x", "--yes")
    assert on(orders, *verb, "--later", "1m").stdout == "rescheduled 2 tasks by 1m later\n"
    assert orders.whole().delayed == {"a": NOW + 65_000, "b": NOW + 66_000}
    assert on(orders, *verb, "--earlier", "5s", "--due-from", "2030-01-01T00:01:06Z").exit_code == 0
    assert orders.whole().delayed == {"a": NOW + 65_000, "b": NOW + 61_000}
    assert on(orders, *verb, "--in", "1s").stdout == "rescheduled 2 tasks, due 2030-01-01T00:00:01.000Z\n"
    assert orders.whole().delayed == {"a": NOW + 1000, "b": NOW + 1000}


def test_ids_and_a_selection_exclude_each_other(orders: Shard) -> None:
    for verb in ("cancel", "reschedule"):
        both = on(orders, "task", verb, "orders", "a", "--tag", "x")
        assert both.exit_code == 2
        assert "expected IDs, or --tag, --kind, --due-from or --due-before, got both" in both.stderr
        assert "got neither" in on(orders, "task", verb, "orders").stderr
    assert "got none of them" in on(orders, "task", "reschedule", "orders", "--tag", "x").stderr
    two = on(orders, "task", "reschedule", "orders", "--tag", "x", "--in", "1s", "--later", "1s")
    assert "--in and --later: expected one of them, got 2" in two.stderr


def test_a_kind_alone_selects_nothing_without_all(orders: Shard) -> None:
    """The ID beside --kind may come from a variable that is empty or unset."""
    tasks = {"push:a": tagged("x", kind="push"), "push:b": tagged("x", kind="push")}
    letters = {"push:c": tagged("x", kind="push"), "d": tagged("x")}
    info = dict.fromkeys(letters, "1 0 buried no")
    state = State(delayed=dict.fromkeys(tasks, NOW + 9), dlq=dict.fromkeys(letters, NOW - 9), dlq_info=info)
    before = orders.seed(state.but(tasks=tasks | letters, tags={f"x {each}": 0 for each in tasks | letters}))
    for verb, *more in CHANGES:
        for given, code, said in (
            ([], 2, f"hint:  {ALL_OF_KIND}\n"),
            ([""], 5, "expected"),
        ):
            result = on(orders, *verb.split(), "orders", *given, "--kind", "push", *more)
            assert (result.exit_code, said in result.stderr) == (code, True), (verb, given, result.stderr)
    assert orders.whole() == before
    for verb, *more in CHANGES[:-1]:
        result = on(orders, *verb.split(), "orders", "--kind", "push", "--all", *more)
        assert result.exit_code == 0, result.stderr
    assert orders.whole().envelopes.keys() == {"d"}
    assert (
        "--all: expected --kind alone" in on(orders, *CANCEL, "--all", "--tag", "x", "--kind", "push").stderr
    )
    assert "--all: expected --kind alone" in on(orders, *CANCEL, "--all", "a").stderr
    assert "got neither" in on(orders, *CANCEL, "--all").stderr


def test_dead_letters_are_redriven_exported_and_purged_by_tag(orders: Shard) -> None:
    info = {"dead": "1 0 buried no", "other": "1 0 buried no"}
    tasks = {**EVERY_HOME.envelopes, "other": tagged("xy", kind="push")}
    orders.seed(EVERY_HOME.but(dlq={"dead": NOW - 9, "other": NOW - 9}, dlq_info=info, tasks=tasks))
    for choice in ([], ["--kind", "push"]):
        assert on(orders, "dlq", "export", "orders", *choice, "--tag", "xy").stdout.startswith(
            '{"id":"other","kind":"push","kind_version":1,"tags":["xy"]'
        )
    assert on(orders, "dlq", "export", "orders", "--kind", "push", "--tag", "x").stdout == ""
    assert on(orders, "dlq", "redrive", "orders", "--tag", "x").stdout.startswith("redrove 1 task,")
    assert on(orders, "dlq", "purge", "orders", "--tag", "x", "--yes").stdout == "purged 0 dead letters\n"
    assert (
        on(orders, "dlq", "purge", "orders", "--all", "--tag", "xy", "--yes").stdout
        == "purged 1 dead letter\n"
    )
    assert orders.whole().dlq == {}


def test_tags_are_given_and_shown(orders: Shard, tmp_path: Path) -> None:
    stored = on(
        orders, "schedule", "orders", "1", "--id", "a", "--tag", "x", "--tag", "y", "--in", "1h", "--yes"
    )
    assert stored.exit_code == 0, stored.output
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"payload": 1, "id": "b", "in": "1h", "tags": ["y"]}\n{"payload": 1, "tags": "y"}\n')
    many = on(orders, "schedule", "orders", "--many", str(file))
    assert "line 2: tags of task" in many.stderr
    assert answer(orders, "task", "get", "orders", "a")["tags"] == ["x", "y"]
    assert "tags" in on(orders, "task", "get", "orders", "a").stdout
    assert orders.whole().tags == {"x a": 0, "y a": 0, "y b": 0}
    refused = on(orders, "schedule", "orders", "1", "--tag", "a b", "--yes")
    assert "expected 1 to 64 bytes without spaces" in refused.stderr
