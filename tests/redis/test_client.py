"""Client and SyncClient against a real Redis: what a caller may schedule, and what is malformed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq import (
    InvalidDueTime,
    InvalidTask,
    Refused,
    SyncClient,
)
from delayq.protocol.results import Cancelled, Outcome
from delayq.protocol.results import State as In
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.redis.state import known

if TYPE_CHECKING:
    from tests.servers import RedisServer

pytestmark = pytest.mark.each_redis


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=10,
)


GOOD_IDS = ["{", "}", "{q:0}", "a:b:", ":1", "*", "[a-z]?", "\\", "ü-漢-🙂", "%s", "$(id)", "--help", "-", "0",
            "x" * 200, "é" * 100, "..", "/etc/passwd", "'", '"', "+5", "nan", "a/b?c=d"]  # fmt: skip


def keys_left(server: RedisServer) -> int:
    with server.client() as redis:
        return int(redis.dbsize())


def test_a_task_is_stored_and_read_back(client: SyncClient, redis_server: RedisServer) -> None:
    before = redis_server.now_ms()
    stored = client.schedule({"order": 7}, delay_ms=60_000, task_id="a", headers={"trace": "x"})
    view = known(client, "a")
    assert before + 60_000 <= stored.due_ms <= redis_server.now_ms() + 60_000
    assert (stored.id, stored.outcome) == ("a", Outcome.CREATED)
    assert (view.state, view.at_ms, view.scheduled_ms) == (In.SCHEDULED, stored.due_ms, stored.due_ms)
    assert (json.loads(view.body), view.headers) == ({"order": 7}, {"trace": "x"})


def test_an_id_is_drawn_where_none_is_given(client: SyncClient) -> None:
    ids = {client.schedule(None, delay_ms=1).id for _ in range(20)}
    assert {len(task_id) for task_id in ids} == {12}
    assert len(ids) == 20


@pytest.mark.parametrize("due_ms", [0, 1, 1_500_000_000_000])
def test_the_past_is_now(client: SyncClient, redis_server: RedisServer, due_ms: int) -> None:
    before = redis_server.now_ms()
    stored = client.schedule(None, due_ms=due_ms, task_id="a")
    assert before <= stored.due_ms == known(client, "a").at_ms <= redis_server.now_ms()
    assert client.counts().stats["clamped"] == 1


@settings(max_examples=25)
@given(payload=JSON_VALUES)
@example(payload=10**4000)
def test_any_json_value_comes_back(client: SyncClient, payload: object) -> None:
    task_id = client.schedule(payload, delay_ms=60_000).id
    assert json.loads(known(client, task_id).body) == payload


@pytest.mark.parametrize("kind", ["image/png", None, "application/json"])
def test_bytes_come_back_with_their_type(client: SyncClient, kind: str | None) -> None:
    client.schedule(b"\x00\xff{", delay_ms=60_000, task_id="a", content_type=kind)
    view = known(client, "a")
    assert (view.body, view.content_type) == (b"\x00\xff{", kind or "application/octet-stream")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "bad",
    [
        {"payload": float("nan")},
        {"payload": [float("-inf")]},
        {"payload": {1, 2}},
        {"payload": object()},
        {"payload": nested(100_000)},
        {"payload": cycle()},
        {"payload": "\ud800"},
        {"payload": "text", "content_type": "text/plain"},
        {"payload": b"", "content_type": "\ud800"},
        {"payload": b"", "content_type": 7},
        {"payload": b"", "content_type": "text/plain\nX-Admin: 1"},
        {"payload": b"", "content_type": "text/plain\0"},
        {"headers": {"a": 1}},
        {"headers": {1: "a"}},
        {"headers": {"a": "\ud800"}},
        {"headers": [("a", "b")]},
        {"headers": {"a": None}},
        {"headers": {"a": b"b"}},
        {"task_id": ""},
        {"task_id": "a b"},
        {"task_id": "\t"},
        {"task_id": "\u2028"},
        {"task_id": "a\r\nX: y"},
        {"task_id": ["a"]},
        {"task_id": "a\n"},
        {"task_id": "\x00"},
        {"task_id": "\x7f"},
        {"task_id": "x" * 201},
        {"task_id": "ü" * 101},
        {"task_id": "\ud800"},
        {"task_id": 7},
        {"task_id": b"a"},
        {"delay_ms": 1.0},
        {"delay_ms": True},
        {"delay_ms": -1},
        {"delay_ms": "1"},
        {"delay_ms": 1 << 47},
        {"delay_ms": None},
        {"due_ms": 1},
        {"delay_ms": None, "due_ms": 1.5},
        {"delay_ms": None, "due_ms": float("nan")},
        {"delay_ms": None, "due_ms": -1},
        {"delay_ms": None, "due_ms": 10**400},
        {"delay_ms": None, "due_ms": True},
        {"delay_ms": None, "due_ms": "5"},
        {"delay_ms": None, "due_ms": 1_893_456_000},
    ],
    ids=",".join,
)
def test_what_is_malformed_is_refused_and_leaves_nothing(
    client: SyncClient, redis_server: RedisServer, bad: dict[str, Any]
) -> None:
    kind = InvalidDueTime if {"delay_ms", "due_ms"} & set(bad) else InvalidTask
    with pytest.raises(kind) as refused:
        client.schedule(**{"payload": None, "delay_ms": 1, **bad})
    assert isinstance(refused.value, Refused)
    assert len(str(refused.value)) < 400
    assert keys_left(redis_server) == 0


@pytest.mark.parametrize("verb", ["cancel", "reschedule", "get"])
@pytest.mark.parametrize("task_id", ["", "a b", "x" * 201, "\ud800", 7])
def test_an_id_that_cannot_be_is_refused_everywhere(client: SyncClient, verb: str, task_id: object) -> None:
    with pytest.raises(InvalidTask):
        getattr(client, verb)(task_id, **({"delay_ms": 1} if verb == "reschedule" else {}))


def test_any_printable_id_of_up_to_200_bytes_is_found_again_by_every_verb(client: SyncClient) -> None:
    for task_id in GOOD_IDS:
        client.schedule(None, delay_ms=60_000, task_id=task_id)
        assert known(client, task_id).id == task_id
        assert [row.id for row in client.list(In.SCHEDULED)] == [task_id]
        assert client.reschedule(task_id, delay_ms=50_000).outcome == "rescheduled"
        assert client.cancel(task_id) is Cancelled.CANCELLED


def test_headers_keep_what_would_break_other_protocols(client: SyncClient) -> None:
    odd = {"a\r\nX-Evil": "b\r\n\r\nGET /", "nul": "\x00", "": "", "ü": "漢"}
    headers = odd | {f"h{n}": "v" for n in range(500)}
    client.schedule(1, delay_ms=60_000, headers=headers, task_id="a")
    assert known(client, "a").headers == headers


def test_a_wrong_word_for_if_exists_is_told_so(client: SyncClient, redis_server: RedisServer) -> None:
    with pytest.raises(ValueError, match='expected "reject", "keep" or "replace", got \'overwrite\''):
        client.schedule(None, delay_ms=1, if_exists="overwrite")  # type: ignore[arg-type]
    assert keys_left(redis_server) == 0
