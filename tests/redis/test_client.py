"""Client and SyncClient against a real Redis: what a caller may schedule, and what is malformed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq import InvalidDueTime, InvalidTask, SyncClient
from delayq.protocol.results import Cancelled, Outcome
from delayq.protocol.results import State as In
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.redis.state import known, tasks

if TYPE_CHECKING:
    from tests.redis.conftest import Make
    from tests.servers import RedisServer

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=10,
)
GOOD_IDS = ["{", "}", "{q:0}", "a:b:", ":1", "*", "[a-z]?", "\\", "ü-漢-🙂", "%s", "--help", "x" * 200, "é" * 100, "..",
            "'", '"', "+5", "a/b?c=d"]  # fmt: skip
BAD_IDS = ["", "a b", "a\r\nX: y", "x" * 201, "ü" * 101, "\ud800", 7, b"a"]


@pytest.mark.each_redis
@pytest.mark.parametrize("shards", [1, 3])
def test_every_verb_finds_what_was_scheduled(make: Make, redis_server: RedisServer, shards: int) -> None:
    """With any printable id, and with headers that would break other protocols."""
    client, before = make(shards=shards), redis_server.now_ms()
    headers = {"a\r\nX-Evil": "b\r\n\r\nGET /", "nul": "\x00", "": "", "ü": "漢"} | {
        f"h{n}": "v" for n in range(99)
    }
    stored = client.schedule({"order": 7}, delay_ms=60_000, task_id="a", headers=headers)
    view = known(client, "a")
    assert before + 60_000 <= stored.due_ms <= redis_server.now_ms() + 60_000
    assert (stored.id, stored.outcome) == ("a", Outcome.CREATED)
    assert (view.state, view.at_ms, view.scheduled_ms) == (In.SCHEDULED, stored.due_ms, stored.due_ms)
    assert (json.loads(view.body), view.headers) == ({"order": 7}, headers)
    for task_id in GOOD_IDS:
        client.schedule(None, delay_ms=50_000, task_id=task_id)
        assert [known(client, task_id).id, client.list(In.SCHEDULED)[0].id] == [task_id] * 2
        assert client.reschedule(task_id, delay_ms=40_000).outcome == "rescheduled"
        assert client.cancel(task_id) is Cancelled.CANCELLED
    assert len(client.schedule_many(tasks(600))) == 600
    assert client.counts().waiting == 601


def test_an_id_is_drawn_and_a_past_due_time_is_now(client: SyncClient, redis_server: RedisServer) -> None:
    ids = {client.schedule(None, delay_ms=1).id for _ in range(20)}
    assert {len(task_id) for task_id in ids} == {12}
    assert len(ids) == 20
    before = redis_server.now_ms()
    for due_ms in (0, 1_500_000_000_000):
        stored = client.schedule(None, due_ms=due_ms, task_id="a", if_exists="replace")
        assert before <= stored.due_ms == known(client, "a").at_ms <= redis_server.now_ms()
    assert client.counts().stats["clamped"] == 2


@settings(max_examples=25)
@given(payload=JSON_VALUES)
@example(payload=10**4000)
def test_any_json_value_comes_back(client: SyncClient, payload: object) -> None:
    task_id = client.schedule(payload, delay_ms=60_000).id
    assert json.loads(known(client, task_id).body) == payload


def test_bytes_come_back_with_their_type(client: SyncClient) -> None:
    for kind in ("image/png", None, "application/json"):
        client.schedule(b"\x00\xff{", delay_ms=1, task_id="a", content_type=kind, if_exists="replace")
        view = known(client, "a")
        assert (view.body, view.content_type) == (b"\x00\xff{", kind or "application/octet-stream")


def nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def malformed() -> list[dict[str, Any]]:
    """Arguments that `schedule` refuses, in place of good ones."""
    payloads = float("nan"), [float("-inf")], {1, 2}, object(), nested(), cycle(), "\ud800"
    due_ms = 1.5, float("nan"), -1, 10**400, True, "5", 1_893_456_000
    return [
        *({"payload": payload} for payload in payloads),
        {"payload": "text", "content_type": "text/plain"},
        *({"payload": b"", "content_type": kind} for kind in ("\ud800", 7, "text/plain\nX-Admin: 1")),
        *({"headers": headers} for headers in ({"k": "\ud800"}, {"k": 7}, {7: "v"}, [("a", "b")])),
        *({"task_id": task_id} for task_id in BAD_IDS),
        *({"delay_ms": delay_ms} for delay_ms in (1.0, True, -1, "1", 1 << 47)),
        {"due_ms": 1},
        *({"delay_ms": None, "due_ms": each} for each in due_ms),
    ]


def test_what_is_malformed_is_refused_and_leaves_nothing(
    client: SyncClient, redis_server: RedisServer
) -> None:
    for bad in malformed():
        kind = InvalidDueTime if {"delay_ms", "due_ms"} & set(bad) else InvalidTask
        with pytest.raises(kind) as refused:
            client.schedule(**{"payload": None, "delay_ms": 1, **bad})
        assert len(str(refused.value)) < 400
    for task_id in BAD_IDS[:-1]:
        for verb in ("cancel", "get", "reschedule"):
            with pytest.raises(InvalidTask):
                getattr(client, verb)(task_id, **({"delay_ms": 1} if verb == "reschedule" else {}))
    with pytest.raises(
        ValueError, match='expected "reject", "keep", "replace" or "debounce", got \'overwrite\''
    ):
        client.schedule(None, delay_ms=1, if_exists="overwrite")  # type: ignore[arg-type]  # on purpose
    with redis_server.client() as redis:
        assert redis.dbsize() == 0
