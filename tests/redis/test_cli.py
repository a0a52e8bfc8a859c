"""delayq schedule: what it stores, what it says, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from delayq.cli import many

from tests.redis.commands import ISO_LATER, LATER, answer, on
from tests.redis.state import NOW, State, envelope, one_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.redis.state import Shard

IMPOSSIBLE: tuple[tuple[list[str], int], ...] = (
    (["{order: 7}"], 2),
    (["[" * 100_000], 2),
    (['"\udcff"'], 2),
    (["1", "--in", "1s", "--at", "2030-01-01T00:00:00Z"], 2),
    (["1", "--in", "400d"], 5),
    (['"' + "x" * 300_000 + '"'], 5),
    (["1", "--header", "k=v", "--header", "k=w"], 2),
    (["@/nonexistent"], 1),
    (["--many", "-", "1", "--in", "5m", "--header", "k=v"], 2),
    ([], 2),
)


def test_schedule_stores_a_task_and_says_when_it_is_due(orders: Shard, tmp_path: Path) -> None:
    """Its payload is an argument, or comes from stdin or a file."""
    payload = '{"order": 7}'
    (tmp_path / "payload").write_text(payload)
    whole = State(delayed={"a": LATER}, tasks={"a": envelope(LATER, {"order": 7}, {"k": "v"})})
    for source in ([payload], ["-"], [f"@{tmp_path / 'payload'}"], ["--", payload]):
        orders.redis.flushall()
        options = ("--in", "30m", "--id", "a", "--header", "k=v", "--yes")
        result = on(orders, "schedule", "orders", *options, *source, stdin=payload.encode())
        assert (result.exit_code, result.stdout) == (0, f"scheduled a, due {ISO_LATER} (in 30m)\n")
        assert (orders.whole().delayed, orders.whole().tasks) == (whole.delayed, whole.tasks)
    on(orders, "schedule", "orders", "-", "--content-type", "image/png", "--id", "b", stdin=b"\xff\x00")
    task = answer(orders, "task", "get", "orders", "b")
    assert (task["content_type"], task["payload_base64"]) == ("image/png", "/wA=")


def test_schedule_takes_an_instant_and_says_when_it_has_passed(orders: Shard) -> None:
    late = on(orders, "schedule", "orders", "1", "--at", "2020-01-01T00:00:00Z", "--id", "a", "--yes")
    assert late.stderr == "note: that time has passed, so it is due now\n"
    later = answer(orders, "schedule", "orders", "1", "--at", "2030-01-01T01:30:00+01:00", "--id", "b")
    assert later == {"id": "b", "outcome": "created", "due_ms": LATER, "due": ISO_LATER}
    assert orders.whole().delayed == {"a": NOW, "b": LATER}


def test_a_task_that_exists_is_kept_or_replaced_only_on_request(orders: Shard) -> None:
    orders.seed(State(delayed={"a": LATER}))
    for if_exists, code, said in (
        ("reject", 5, "error: task a exists already\nhint:  --if-exists keep, or replace\n"),
        ("keep", 0, f"kept a, due {ISO_LATER}\n"),
        ("replace", 0, "replaced a, due 2030-01-01T00:00:00.000Z (now)\n"),
    ):
        result = on(orders, "schedule", "orders", "1", "--id", "a", "--yes", "--if-exists", if_exists)
        assert (result.exit_code, result.output) == (code, said)


def test_what_cannot_be_scheduled_leaves_nothing_and_shows_no_trace(orders: Shard) -> None:
    for args, code in IMPOSSIBLE:
        result = on(orders, "schedule", "orders", *args)
        assert (result.exit_code, result.stdout) == (code, ""), args
        assert result.stderr.startswith("error: ")
        assert len(result.stderr) < 1000
        if "--many" in args:
            wanted = "expected no PAYLOAD and no option of a task, got PAYLOAD, --in, --header\n"
            assert result.stderr.startswith(f"error: --many: {wanted}")
    assert orders.whole() == State()


def test_a_queue_that_was_never_used_is_warned_of_unless_confirmed(orders: Shard) -> None:
    """A misspelt name would make keys that no process looks at."""
    result = on(orders, "schedule", "odrers", "1")
    where = f"127.0.0.1:{one_server(orders).port}"
    assert result.stderr.startswith(
        f"warning: queue odrers was never used before in Redis at {where}, and no document"
    )
    assert result.exit_code == 0
    assert on(orders, "schedule", "odrers", "2").stderr == ""  # it is used by now
    assert on(orders, "schedule", "other", "1", "--yes").stderr == ""


def test_many_come_from_a_file_and_wrong_lines_are_reported_by_number(
    orders: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON lists every refused line, up to a bound, and stderr a few."""
    first, last = b'{"payload": 1, "id": "a", "in": "30m"}\n', b'{"payload": 3, "id": "c"}'
    lines = first + b'\nnonsense\n{"payload": 2, "id": "a b"}\n' + b"nonsense\n" * 28 + last
    result = on(orders, "schedule", "orders", "--many", "-", "-o", "json", stdin=lines)
    value = json.loads(result.stdout)
    assert (result.exit_code, value["scheduled"], value["refused_count"]) == (5, 2, 30)
    assert sorted(each["line"] for each in value["refused"]) == [*range(3, 33)]
    assert orders.whole().delayed == {"a": LATER, "c": NOW}
    assert "line 3: Expecting value at line 1, column 1\n" in result.stderr
    assert "line 23: " in result.stderr
    assert "line 24: " not in result.stderr
    assert "error: refused 10 more lines\n" in result.stderr
    monkeypatch.setattr(many, "LISTED", 25)  # a file can be larger than memory
    value = json.loads(on(orders, "schedule", "orders", "--many", "-", "-o", "json", stdin=lines).stdout)
    assert (len(value["refused"]), value["refused_count"]) == (25, 32)


@pytest.mark.parametrize(
    ("lines", "got", "convert"),
    [
        (b'[\n  {"payload": 1},\n  {"payload": 2}\n]\n', "the beginning of an array", "jq -c '.[]'"),
        (b'\n[{"payload": 1},\n{"payload": 2}\n]', "the beginning of an array", "jq -c '.[]'"),
        (b'{"payload": 1},\n{"payload": 2}\n', "an object and a comma, as in an array", "jq -c '.[]'"),
        (b'\xef\xbb\xbf{\n  "payload": 1\n}\n', "an object over several lines", "jq -c ."),
        (b'{"payload": {\n"a": 1}}\n{"payload": 2}\n', "an object over several lines", "jq -c ."),
        (b'{"id": "a",\n"payload": 1}\n{"payload": 2}\n', "an object over several lines", "jq -c ."),
    ],
)
def test_many_that_are_no_json_lines_are_refused_as_a_whole_with_a_command_that_converts_them(
    orders: Shard, lines: bytes, got: str, convert: str
) -> None:
    """The last line of an array is a task, and would be stored."""
    result = on(orders, "schedule", "orders", "--many", "-", stdin=lines)
    assert result.exit_code == 2
    assert f"expected one JSON object a line, got {got}; nothing was stored" in result.stderr
    assert f"{convert} writes one object a line" in result.stderr
    assert orders.whole().tasks == {}


def test_a_byte_order_mark_is_skipped_in_many_and_named_in_a_payload(orders: Shard, tmp_path: Path) -> None:
    lines = b'\xef\xbb\xbf{"payload": 1, "id": "a"}\n{"payload": 2, "id": "b"}\n'
    assert on(orders, "schedule", "orders", "--many", "-", stdin=lines).stdout == "scheduled 2 tasks\n"
    (tmp_path / "one.json").write_bytes(b"\xef\xbb\xbf1")
    refused = on(orders, "schedule", "orders", f"@{tmp_path}/one.json")
    assert (refused.exit_code, "byte order mark" in refused.stderr) == (2, True)


def test_a_full_redis_is_not_called_unreachable_and_many_say_what_a_repetition_stores(orders: Shard) -> None:
    with orders.full_memory():
        one = on(orders, "schedule", "orders", "1")
        several = on(orders, "schedule", "orders", "--many", "-", stdin=b'{"payload": 1, "id": "a"}')
    assert (one.exit_code, several.exit_code) == (4, 4)
    assert f"error: Redis at 127.0.0.1:{one_server(orders).port} does not serve (OOM " in one.stderr
    assert "keeps tasks that wait or run" in several.stderr
    assert "a task that has finished meanwhile is stored again and runs again" in several.stderr
    assert orders.whole() == State()
