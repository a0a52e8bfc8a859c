"""Commands with hostile ids, headers and letters: stored whole or refused by name, and exported to the byte."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from delayq.protocol.envelope import BYTES_TYPE

from tests.redis.commands import answer, on
from tests.redis.state import NOW, State

if TYPE_CHECKING:
    from pathlib import Path

    from tests.redis.state import Shard

GOOD_IDS = (
    "*",
    "[a-z]?",
    "a:b:",
    "ü-漢-🙂",
    "%s",
    "$(id)",
    "\\",
    "'",
    "{q:0}",
    "a@file",
    "-",
    "--help",
    "--",
    "--id",
)
BAD_IDS = ("a b", "a\r\nX: y", "\x00", "\u2028", "x" * 201, "é" * 101, "\x1b[31m", "")
KEPT_HEADERS = ("k=v\r\nX-Evil: 1", "k\r\nX: y=v", "nul=\x00", "ü=漢", "k=", "k==", "-k=-v", "*=?")
RAW = {
    "empty": b"",
    "nul": b"\x00",
    "newer": b"\x21{}" + bytes(6),
    "cut": b"\x11nul",
    "noise": bytes(range(256)) * 40,
}


def test_an_id_of_any_letters_is_found_again_by_every_command(orders: Shard) -> None:
    """Behind --, one that looks like an option, too. A glob is no glob: the task beside it stays as it is."""
    beside = orders.seed(State(delayed={"aa": NOW + 9000})).delayed
    for task_id in GOOD_IDS:
        assert answer(orders, "schedule", "orders", "1", f"--id={task_id}", "--in", "1m")["id"] == task_id
        assert task_id in on(orders, "task", "get", "orders", "--", task_id).stdout
        assert on(orders, "task", "reschedule", "orders", "--in", "2m", "--", task_id).exit_code == 0
        assert task_id in {row["id"] for row in answer(orders, "task", "list", "orders")}
        assert on(orders, "task", "cancel", "orders", "--", task_id).stdout == f"cancelled {task_id}\n"
    assert orders.whole().delayed == beside


def test_an_id_that_could_break_a_line_is_refused_by_every_command_in_one_line(orders: Shard) -> None:
    commands = [("task", "get"), ("task", "cancel"), ("dlq", "get"), ("dlq", "export"), ("dlq", "redrive")]
    for task_id in BAD_IDS:
        for args in (
            ("schedule", "orders", "1", "--id", task_id),
            ("task", "reschedule", "orders", task_id, "--in", "1s"),
            ("dlq", "purge", "orders", task_id, "--yes"),
            *((*command, "orders", task_id) for command in commands),
        ):
            result = on(orders, *args)
            assert (result.exit_code, result.stdout) == (5, ""), args
            assert "expected 1 to 200 bytes" in result.stderr
            assert len(result.stderr.splitlines()) == 1
            assert result.stderr.rstrip("\n").isprintable()
    assert orders.whole() == State()


def test_headers_are_kept_as_they_are_or_refused(orders: Shard) -> None:
    for header in ("=v", "novalue"):
        assert on(orders, "schedule", "orders", "1", "--in", "1m", f"--header={header}").exit_code == 2
    assert orders.whole() == State()
    options = ("--id", "a", "--in", "1m", "--if-exists", "replace")
    for header in KEPT_HEADERS:
        name, _, value = header.partition("=")
        assert on(orders, "schedule", "orders", "1", *options, f"--header={header}").exit_code == 0
        assert answer(orders, "task", "get", "orders", "a")["headers"] == {name: value}
        shown = on(orders, "task", "get", "orders", "a").stdout.splitlines()
        assert all(line.isprintable() for line in shown)
        assert len([line for line in shown if line.startswith("headers")]) == 1


def test_letters_that_cannot_be_read_are_listed_shown_exported_redriven_and_purged(
    orders: Shard, tmp_path: Path
) -> None:
    """And their bytes come out whole: what cannot be read here may be read elsewhere."""
    orders.seed(State(delayed=dict.fromkeys(RAW, NOW), tasks=RAW))
    claimed = orders.run(orders.commands.claim(0, 10, 1000))
    reasons = [each for lease, _ in claimed.unreadable for each in (lease.member, "unread")]
    orders.run(orders.commands.bury(0, reasons))
    assert {row["id"] for row in answer(orders, "dlq", "list", "orders")} == set(RAW)
    assert on(orders, "dlq", "list", "orders").stdout.isascii()
    shown = {each["id"]: each for each in answer(orders, "dlq", "get", "orders", *RAW)}
    assert {name: base64.b64decode(each["payload_base64"]) for name, each in shown.items()} == RAW
    assert {each["content_type"] for each in shown.values()} == {BYTES_TYPE}
    for name in RAW:
        assert on(orders, "dlq", "get", "orders", name).exit_code == 0
        assert answer(orders, "task", "get", "orders", name)["state"] == "dead"
    file = tmp_path / "letters"
    assert on(orders, "dlq", "export", "orders", "--to", str(file)).exit_code == 0
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    assert {each["id"]: base64.b64decode(each["payload_base64"]) for each in exported} == RAW
    assert answer(orders, "dlq", "redrive", "orders", "noise")["count"] == 1
    assert (orders.whole().delayed, orders.whole().tasks) == ({"noise": NOW}, RAW)
    assert answer(orders, "dlq", "purge", "orders", "--all", "--yes")["count"] == len(RAW) - 1
    assert orders.whole().envelopes == {"noise": RAW["noise"]}
