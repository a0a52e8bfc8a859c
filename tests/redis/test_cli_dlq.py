"""delayq dlq: what it says, and what becomes of dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq.cli import inputs
from delayq.protocol.envelope import Further, with_fields

from tests.redis.commands import DEAD, answer, on
from tests.redis.state import NOW, State

if TYPE_CHECKING:
    from tests.redis.state import Shard

ERROR = "HTTPStatusError: 404 Not Found (shop.orders:cancel_unpaid line 41)"


def test_groups_are_the_largest_first_and_letters_can_be_shown(orders: Shard) -> None:
    orders.seed(DEAD)
    assert on(orders, "dlq", "groups", "orders").stdout == (
        f"GROUP  COUNT  LAST  ERROR\n    1    212  2m    {ERROR}\n"
        "    2      3  4h    task ran longer than handlerTimeoutSeconds (30)\n"
    )
    first, second = answer(orders, "dlq", "groups", "orders")
    assert (first["group"], first["count"], first["last_died_ms"]) == (1, 212, NOW - 120_000)
    assert second["ids"] == ["t-0", "t-1", "t-2"]
    [letter] = answer(orders, "dlq", "get", "orders", "t-1")
    assert (letter["failures"], letter["reason"]) == (3, "attempts")
    assert [row["id"] for row in answer(orders, "dlq", "list", "orders", "--limit", "2")] == ["t-0", "t-1"]
    assert on(orders, "dlq", "get", "orders", "nope").exit_code == 6


def test_a_task_that_ended_its_worker_has_an_error_in_every_view(orders: Shard) -> None:
    orders.seed(State(dlq={"a": NOW - 9000}, dlq_info={"a": "0 3 crashes "}))
    said = "its worker ended in 3 runs (maxCrashes)"
    for command in (("groups", "orders"), ("list", "orders"), ("get", "orders", "a")):
        assert said in on(orders, "dlq", *command).stdout
        [found] = answer(orders, "dlq", *command)
        assert found["error"] == said
    dry = on(orders, "dlq", "redrive", "orders", "--group", "1", "--dry-run")
    assert dry.stderr == f"group 1: {said}\n"
    # A table shows the first line.
    error = "ValueError: nowhere (shop:remind line 7)\nshop:remind line 7: raise ValueError('nowhere')"
    for stored in (error, ""):
        orders.seed(State(dlq={"a": NOW - 9000}, dlq_info={"a": f"1 0 buried {stored}"}))
        for listing in ("list", "groups"):
            shown = on(orders, "dlq", listing, "orders").stdout
            assert shown.splitlines()[1].endswith(stored.partition("\n")[0]), listing
            assert [each["error"] for each in answer(orders, "dlq", listing, "orders")] == [stored]


def of_kinds() -> State:
    """Two kinds that died of the same error, and a task without a kind."""
    kinds = {"a": ("push", 1), "b": ("push", 2), "c": ("refund", 1)}
    envelopes = {
        name: with_fields(b"\x11{}", Further(*kind)) + NOW.to_bytes(6, "big") for name, kind in kinds.items()
    }
    envelopes["d"] = b"\x11{}" + NOW.to_bytes(6, "big")
    return State(
        dlq={name: NOW - 9000 + nth for nth, name in enumerate(envelopes)},
        tasks=envelopes,
        dlq_info=dict.fromkeys(envelopes, "3 0 attempts no answer"),
    )


def test_letters_are_grouped_and_chosen_by_kind(orders: Shard) -> None:
    orders.seed(of_kinds())
    assert on(orders, "dlq", "groups", "orders").stdout == (
        "GROUP  KIND    COUNT  LAST  ERROR\n"
        "    1  push        2  9s    no answer\n"
        "    2              1  9s    no answer\n"
        "    3  refund      1  9s    no answer\n"
    )
    [refund] = answer(orders, "dlq", "groups", "orders", "--kind", "refund")
    assert (refund["group"], refund["kind"], refund["ids"]) == (3, "refund", ["c"])
    shown = on(orders, "dlq", "list", "orders", "--kind", "push", "--offset", "1").stdout
    assert [line.split()[:3] for line in shown.splitlines()] == [["ID", "KIND", "DIED"], ["b", "push", "2"]]
    rows = answer(orders, "dlq", "list", "orders")
    assert [(each["id"], each.get("kind"), each.get("kind_version")) for each in rows] == [
        ("a", "push", 1),
        ("b", "push", 2),
        ("c", "refund", 1),
        ("d", None, None),
    ]
    assert on(orders, "dlq", "redrive", "orders", "--kind", "push", "--group", "1").exit_code == 2
    assert answer(orders, "dlq", "redrive", "orders", "--kind", "push", "--all")["count"] == 2
    assert answer(orders, "dlq", "purge", "orders", "--kind", "", "--all", "--yes")["count"] == 1
    assert list(orders.whole().dlq) == ["c"]


def test_redrive_spreads_a_group_over_time_and_names_ids_that_are_no_letters(orders: Shard) -> None:
    before = orders.seed(DEAD)
    dry = on(orders, "dlq", "redrive", "orders", "--group", "1", "--rate", "50/s", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "would redrive 212 tasks in about 4 s; nothing changed\n")
    assert dry.stderr == f"group 1: {ERROR}\n"
    assert orders.whole() == before
    result = on(orders, "dlq", "redrive", "orders", "--group", "1", "--rate", "50/s")
    assert result.stdout == "redrove 212 tasks, due in about 4 s\n"
    whole = orders.whole()
    assert sorted(whole.delayed.values()) == [NOW + 20 * nth for nth in range(212)]
    assert sorted(whole.dlq) == ["t-0", "t-1", "t-2"]
    result = on(orders, "dlq", "redrive", "orders", "t-0", "nope", "t-0")
    assert (result.exit_code, result.stdout) == (6, "redrove 1 task, due at once\n")
    assert result.stderr == "error: no dead letter nope\n"
    for which, count in ((["--all"], 2), (["--group", "all"], 0)):
        said = {"count": count, "seconds": 0.0, "dry_run": False}
        assert answer(orders, "dlq", "redrive", "orders", *which) == said
    assert answer(orders, "dlq", "groups", "orders") == []


def test_a_choice_that_is_none_changes_nothing(orders: Shard) -> None:
    before = orders.seed(DEAD)
    for verb in ("redrive", "purge"):
        for args, code in (([], 2), (["a", "--all"], 2), (["--group", "0"], 2), (["--group", "3"], 6)):
            assert on(orders, "dlq", verb, "orders", *args).exit_code == code, args
    assert orders.whole() == before


def test_purge_deletes_nothing_without_a_yes(orders: Shard) -> None:
    before = orders.seed(DEAD)
    dry = on(orders, "dlq", "purge", "orders", "--group", "2", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "would purge 3 dead letters; nothing changed\n")
    asked = on(orders, "dlq", "purge", "orders", "--group", "2")
    assert (asked.exit_code, orders.whole()) == (2, before)
    assert (
        "delete 3 dead letters of queue orders? They cannot be restored. stdin is not a terminal; pass --yes"
        in asked.stderr
    )
    assert on(orders, "dlq", "purge", "orders", "--group", "2", "--yes").stdout == "purged 3 dead letters\n"
    assert len(orders.whole().dlq) == 212


@pytest.mark.parametrize("which", [["--group", "2"], ["t-0", "t-1", "t-2"]])
def test_purge_leaves_a_letter_that_died_again_after_it_was_listed(
    orders: Shard, monkeypatch: pytest.MonkeyPatch, which: list[str]
) -> None:
    """While the question waits for its answer, the letter is redriven."""
    orders.seed(DEAD)

    def meanwhile(_question: str, _hint: str) -> None:
        orders.run(orders.commands.redrive(0, ["t-0", 0]))
        [lease] = orders.run(orders.commands.claim(0, 9, 1000)).leases
        orders.run(orders.commands.bury(0, [lease.member, "another error"]))

    monkeypatch.setattr(inputs, "confirm", meanwhile)
    assert on(orders, "dlq", "purge", "orders", *which).exit_code == 0
    left = orders.whole().dlq_info
    assert {"t-0", "t-1", "t-2"} & left.keys() == {"t-0"}
    assert left["t-0"].endswith("another error")


def test_an_export_holds_everything_and_can_be_scheduled_again(orders: Shard, tmp_path: Path) -> None:
    file = str(tmp_path / "letters")
    on(orders, "schedule", "orders", '{"n": 1e2, "big": 123456789012345678901234567890}', "--id", "json")
    on(orders, "schedule", "orders", "-", "--bytes", "--id", "bytes", "--header", "k=ü", stdin=b"\xff\x00")
    kind = "--content-type=application/octet-stream"
    on(orders, "schedule", "orders", "{bad", "--bytes", kind, "--id", "text")
    stored = orders.whole().envelopes
    leases = orders.run(orders.commands.claim(0, 9, 1000)).leases
    reasons = [each for lease in leases for each in (lease.member, "boom\n\x1b[31m")]
    orders.run(orders.commands.bury(0, reasons))
    assert on(orders, "dlq", "export", "orders", "--to", file).stderr == "exported 3 dead letters\n"
    assert on(orders, "dlq", "export", "orders").stdout == Path(file).read_text()
    assert on(orders, "dlq", "purge", "orders", "--all", "--yes").exit_code == 0
    assert on(orders, "schedule", "orders", "--many", file).stdout == "scheduled 3 tasks\n"
    assert orders.whole().envelopes == stored
