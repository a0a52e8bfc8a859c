"""delayq schedule: what it stores, what it says, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.redis.commands import ISO_LATER, LATER, answer, on
from tests.redis.state import NOW, Shard, State, envelope, one_server, shard_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RedisServer


@pytest.fixture
def orders(redis_server: RedisServer) -> Iterator[Shard]:
    with shard_on(redis_server, "orders") as shard:
        yield shard


def test_schedule_stores_a_task_and_says_when_it_is_due(orders: Shard) -> None:
    result = on(
        orders, "schedule", "orders", '{"order": 7}', "--in", "30m", "--id", "order-7", "--header", "k=v"
    )
    assert (result.exit_code, result.stdout) == (0, f"scheduled order-7, due {ISO_LATER} (in 30m)\n")
    whole = orders.whole()
    assert whole.delayed == {"order-7": LATER}
    assert whole.envelopes == {"order-7": envelope(LATER, {"order": 7}, {"k": "v"})}


def test_schedule_takes_an_instant_and_says_when_it_has_passed(orders: Shard) -> None:
    late = on(orders, "schedule", "orders", "1", "--at", "2020-01-01T00:00:00Z", "--id", "a", "--yes")
    assert late.stderr == "note: that time has passed, so it is due now\n"
    later = answer(orders, "schedule", "orders", "1", "--at", "2030-01-01T01:30:00+01:00", "--id", "b")
    assert later == {"id": "b", "outcome": "created", "due_ms": LATER, "due": ISO_LATER}
    assert orders.whole().delayed == {"a": NOW, "b": LATER}


@pytest.mark.parametrize("args", [["-"], ["@FILE"], ["--", '{"order": 7}']])
def test_a_payload_comes_from_the_words_from_stdin_or_from_a_file(
    orders: Shard, tmp_path: Path, args: list[str]
) -> None:
    (tmp_path / "payload").write_text('{"order": 7}')
    words = [word.replace("FILE", str(tmp_path / "payload")) for word in args]
    on(orders, "schedule", "orders", "--id", "a", *words, stdin=b'{"order": 7}')
    assert orders.whole().envelopes == {"a": envelope(NOW, {"order": 7})}


def test_bytes_are_stored_as_they_are(orders: Shard) -> None:
    on(orders, "schedule", "orders", "-", "--content-type", "image/png", "--id", "a", stdin=b"\xff\x00")
    task = answer(orders, "task", "get", "orders", "a")
    assert (task["content_type"], task["payload_base64"]) == ("image/png", "/wA=")


@pytest.mark.parametrize(
    ("if_exists", "code", "said"),
    [
        ("reject", 5, "error: task a exists already\nhint:  --if-exists keep, or replace\n"),
        ("keep", 0, f"kept a, due {ISO_LATER}\n"),
        ("replace", 0, "scheduled a, due 2030-01-01T00:00:00.000Z (now)\n"),
    ],
)
def test_what_exists_is_kept_or_replaced_when_told_so(
    orders: Shard, if_exists: str, code: int, said: str
) -> None:
    orders.seed(State(delayed={"a": LATER}))
    result = on(orders, "schedule", "orders", "1", "--id", "a", "--yes", "--if-exists", if_exists)
    assert (result.exit_code, result.output) == (code, said)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["{order: 7}"], 2),
        (["NaN"], 2),
        ([""], 2),
        (["[" * 100_000], 2),
        (["1", "--in", "1s", "--at", "2030-01-01T00:00:00Z"], 2),
        (["1", "--in", "-1s"], 2),
        (["1", "--in", "999999999999d"], 5),
        (["1", "--in", "400d"], 5),
        (["1", "--id", "a b"], 5),
        (["1", "--id", ""], 5),
        (["1", "--id", "x" * 201], 5),
        (["1", "--id", "\udcff"], 5),
        (['"\udcff"'], 2),
        (['"' + "x" * 300_000 + '"'], 5),
        (["1", "--header", "k=v", "--header", "k=w"], 2),
        (["1", "--header", "k=" + "x" * 9000], 5),
        (["@/nonexistent"], 1),
        (["@/"], 1),
        (["--many", "-", "1"], 2),
        ([], 2),
    ],
)
def test_what_cannot_be_scheduled_leaves_nothing_and_shows_no_trace(
    orders: Shard, args: list[str], code: int
) -> None:
    result = on(orders, "schedule", "orders", *args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("error: ")
    assert len(result.stderr) < 1000
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


def test_what_does_not_go_with_many_is_named(orders: Shard) -> None:
    result = on(orders, "schedule", "orders", "--many", "-", "1", "--in", "5m", "--header", "k=v")
    assert result.stderr.startswith(
        "error: --many: expected no PAYLOAD and no option of a task, got PAYLOAD, --in, --header\n"
    )


def test_many_come_from_a_file_and_wrong_lines_are_told_by_number(orders: Shard) -> None:
    first, last = b'{"payload": 1, "id": "a", "in": "30m"}\n', b'{"payload": 3, "id": "c"}'
    lines = first + b'\nnonsense\n{"payload": 2, "id": "a b"}\n' + last
    result = on(orders, "schedule", "orders", "--many", "-", "-o", "json", stdin=lines)
    assert result.exit_code == 5
    assert "line 3: Expecting value at line 1, column 1\n" in result.stderr
    value = json.loads(result.stdout)
    assert (value["scheduled"], [each["line"] for each in value["refused"]]) == (2, [3, 4])
    assert orders.whole().delayed == {"a": LATER, "c": NOW}


def test_many_that_broke_off_say_what_a_repetition_stores(orders: Shard) -> None:
    with orders.full_memory():
        result = on(orders, "schedule", "orders", "--many", "-", stdin=b'{"payload": 1, "id": "a"}')
    assert result.exit_code == 4
    assert "keeps tasks that wait or run" in result.stderr
    assert "a task that has finished meanwhile is stored again and runs again" in result.stderr


def test_a_full_redis_is_not_called_unreachable(orders: Shard) -> None:
    with orders.full_memory():
        result = on(orders, "schedule", "orders", "1")
    assert result.exit_code == 4
    assert f"error: Redis at 127.0.0.1:{one_server(orders).port} does not serve (OOM " in result.stderr
    assert orders.whole() == State()
