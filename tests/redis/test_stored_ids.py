"""A call or command that has a kind and an ID means the task KIND:ID. Without a kind, the ID is the stored one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from delayq import App, InvalidTask, NewTask, TaskExists
from delayq.client.encoding import stored_id

from tests.redis.commands import answer, document, on
from tests.redis.state import NOW, State

if TYPE_CHECKING:
    from pathlib import Path

    from delayq import SyncClient

    from tests.redis.state import Shard

OCCURRENCE = "@nightly@2026-12-01T02:00:00Z"
DEAD = State(dlq={"push:a": NOW - 9, "push:b": NOW - 8, "a": NOW - 7})


def ids(client: SyncClient) -> list[str]:
    return sorted(row.id for row in client.list("scheduled"))  # type: ignore[arg-type]


def test_the_stored_id_is_the_kind_and_the_id_and_may_be_given_again() -> None:
    assert stored_id("order-7", None) == "order-7"
    assert stored_id("order-7", "push") == stored_id("push:order-7", "push") == "push:order-7"
    assert stored_id("push:order-7", "pus") == "pus:push:order-7"
    assert stored_id("@alice", "push") == "push:@alice"
    assert stored_id(OCCURRENCE, "push") == OCCURRENCE
    assert len(stored_id("x" * 195, "push")) == 200
    for wrong in ("", "a b", 7, "x" * 196):
        with pytest.raises(InvalidTask, match="task_id: expected 1 to 200 bytes without spaces"):
            stored_id(wrong, "push")  # type: ignore[arg-type]
    for kind in ("", "a:b", "a b", 7):
        with pytest.raises(InvalidTask, match="kind of task a: expected 1 to 64 letters"):
            stored_id("a", kind)  # type: ignore[arg-type]


def test_an_app_and_every_call_of_a_client_mean_the_same_task(client: SyncClient) -> None:
    push = App().task(name="push")(lambda: None)
    client.schedule_many([push.options(delay="1h", id="a").task()])
    with pytest.raises(TaskExists, match="task push:a exists already") as error:
        client.schedule({}, delay_ms=9, kind="push", task_id="a")
    assert error.value.task_id == "push:a"
    client.schedule({}, delay_ms=3_600_000, kind="pull", task_id="a")
    client.schedule({}, delay_ms=3_600_000, task_id="a")
    again = client.schedule({}, delay_ms=9, kind="push", task_id="push:a", if_exists="keep")
    assert (again.id, again.outcome) == ("push:a", "kept")
    tasks = [
        NewTask({}, delay_ms=3_600_000, kind="push", task_id="b"),
        push.options(delay="9s", id="a").task(),
    ]
    stored = client.schedule_many(tasks, if_exists="replace")
    assert [each.id for each in stored] == ["push:b", "push:a"]
    assert ids(client) == ["a", "pull:a", "push:a", "push:b"]

    found = client.get("a", kind="push")
    assert found is not None
    assert (found.id, found.kind) == ("push:a", "push")
    moved = client.reschedule("a", kind="push", delay_ms=7_200_000)
    assert client.get("push:a").at_ms == moved.due_ms  # type: ignore[union-attr]
    assert client.cancel("a", kind="push") == "cancelled"
    assert client.cancel("push:b", kind="push") == "cancelled"
    assert client.cancel("a", kind="push") == "not_found"
    assert ids(client) == ["a", "pull:a"]


def test_calls_about_dead_letters_take_the_kind_of_their_ids(client: SyncClient, shard: Shard) -> None:
    shard.seed(DEAD)
    assert [each.id for each in client.dlq_get(["a", "push:b"], kind="push")] == ["push:a", "push:b"]
    assert [each.id for each in client.dlq_list(["a"], kind="")] == ["a"]
    assert client.dlq_redrive(["a"], kind="push").tasks == 1
    assert ids(client) == ["push:a"]
    assert client.dlq_purge(["b"], kind="push") == 1
    assert shard.whole().dlq == {"a": NOW - 7}


def test_commands_store_and_find_the_same_task_and_print_its_stored_id(orders: Shard) -> None:
    hour = ("--in", "1h", "--kind", "push")
    for given in ("a", "push:a"):
        result = on(
            orders, "schedule", "orders", "{}", "--id", given, *hour, "--if-exists", "replace", "--yes"
        )
        assert result.stdout.split()[1] == "push:a,"
    assert orders.whole().delayed.keys() == {"push:a"}
    assert answer(orders, "task", "get", "orders", "a", "--kind", "push")["id"] == "push:a"
    reported = answer(orders, "task", "reschedule", "orders", "a", *hour)
    assert (reported["id"], reported["outcome"]) == ("push:a", "rescheduled")
    assert on(orders, "task", "get", "orders", "b", "--kind", "push").stderr.startswith(
        "error: task push:b is not"
    )
    dry = on(orders, "task", "cancel", "orders", "a", "push:a", "--kind", "push", "--dry-run")
    assert dry.stdout == "would cancel push:a\n"
    assert on(orders, "task", "cancel", "orders", "a", "--kind", "push").stdout == "cancelled push:a\n"
    assert orders.whole().delayed == {}
    both = on(orders, "task", "cancel", "orders", "a", "--kind", "push", "--tag", "x")
    assert (both.exit_code, "got both" in both.stderr) == (2, True)


def test_commands_about_dead_letters_take_the_kind_of_their_ids(orders: Shard, tmp_path: Path) -> None:
    orders.seed(DEAD)
    of_push = ("a", "--kind", "push")
    assert [each["id"] for each in answer(orders, "dlq", "get", "orders", *of_push)] == ["push:a"]
    exported = json.loads(on(orders, "dlq", "export", "orders", *of_push).stdout)
    assert exported["id"] == "push:a"
    assert on(orders, "dlq", "purge", "orders", *of_push, "--yes").exit_code == 0
    assert orders.whole().dlq.keys() == {"push:b", "a"}
    missing = on(orders, "dlq", "redrive", "orders", *of_push)
    assert (missing.exit_code, missing.stderr) == (6, "error: no dead letter push:a\n")
    handler = '{python: {callable: "json:dumps"}, kinds: {push: {exec: {command: [cat]}}}}'
    bare = on(orders, "dlq", "redrive", document(tmp_path, 1, handler=handler), "b", "a:a")
    said = "did you mean push:b? The ID of a task with a kind is KIND:ID"
    assert bare.stderr == f"error: no dead letter a:a\nerror: no dead letter b\nhint:  {said}\n"
    bare = on(orders, "dlq", "get", str(tmp_path / "queue.yaml"), "b")
    assert bare.stderr == f"error: no dead letter b\nhint:  {said}\n"
    # Every exported line can be scheduled again, with its kind beside the stored ID.
    line = exported | {"kind": "push", "kind_version": 1}
    (tmp_path / "letters").write_text(json.dumps(line))
    assert on(orders, "schedule", "orders", "--many", str(tmp_path / "letters"), "--yes").exit_code == 0
    assert orders.whole().delayed.keys() == {"push:a"}
