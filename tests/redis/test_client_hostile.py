"""Both clients: what hostile callers pass is stored whole or refused by name, and nothing is left of the latter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import InvalidDueTime, InvalidTask, NewTask, PayloadTooLarge, SyncClient, TasksRefused
from delayq.contract import Limits
from delayq.protocol.results import Cancelled, State

from tests.redis.state import known

if TYPE_CHECKING:
    from tests.redis.conftest import Make
    from tests.servers import RedisServer

GOOD_IDS = ["{", "}", "{q:0}", "a:b:", ":1", "*", "[a-z]?", "\\", "ü-漢-🙂", "%s", "$(id)", "--help", "-", "0",
            "x" * 200, "é" * 100, "..", "/etc/passwd", "'", '"', "+5", "nan"]  # fmt: skip
BAD_IDS = [
    "",
    " ",
    "a b",
    "a\n",
    "\x00",
    "a\r\nX: y",
    "\u2028",
    "x" * 201,
    "é" * 101,
    "\ud800",
    "\x7f",
    "\t",
    7,
    b"a",
    ["a"],
]
BAD_HEADERS = [{"a": 1}, {1: "a"}, {"a": None}, ["a"], "a", {"a": b"b"}, {"a": "\ud800"}]


def deep(levels: int) -> Any:  # noqa: ANN401  any JSON value
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize("task_id", GOOD_IDS)
def test_an_id_of_any_letters_is_found_again_by_every_verb(client: SyncClient, task_id: str) -> None:
    client.schedule({"n": 1}, delay_ms=60_000, task_id=task_id)
    assert known(client, task_id).id == task_id
    assert [row.id for row in client.list(State.SCHEDULED)] == [task_id]
    assert client.reschedule(task_id, delay_ms=50_000).outcome == "rescheduled"
    assert client.cancel(task_id) == Cancelled.CANCELLED


@pytest.mark.parametrize("task_id", BAD_IDS, ids=repr)
def test_an_id_that_could_break_a_line_or_a_key_is_refused_by_every_verb(
    client: SyncClient,
    redis_server: RedisServer,
    task_id: Any,  # noqa: ANN401  that is the point
) -> None:
    for call in (
        lambda: client.schedule(1, delay_ms=1, task_id=task_id),
        lambda: client.cancel(task_id),
        lambda: client.get(task_id),
        lambda: client.reschedule(task_id, delay_ms=1),
    ):
        with pytest.raises(InvalidTask, match="task_id: expected 1 to 200 bytes"):
            call()
    with redis_server.client() as redis:
        assert not redis.dbsize()


@pytest.mark.parametrize("headers", BAD_HEADERS, ids=repr)
def test_headers_that_are_no_texts_are_refused(client: SyncClient, headers: Any) -> None:  # noqa: ANN401  as above
    with pytest.raises(InvalidTask):
        client.schedule(1, delay_ms=1, headers=headers, task_id="a")
    assert client.get("a") is None


def test_headers_keep_what_would_break_other_protocols(client: SyncClient) -> None:
    headers = {
        "a\r\nX-Evil": "b\r\n\r\nGET /",
        "nul": "\x00",
        "": "",
        "ü": "漢",
        **{f"h{n}": "v" for n in range(500)},
    }
    client.schedule(1, delay_ms=60_000, headers=headers, task_id="a")
    assert known(client, "a").headers == headers


def test_too_many_or_too_large_headers_are_refused(client: SyncClient) -> None:
    for headers in ({f"h{n}": "v" for n in range(10_000)}, {"h": "v" * 8192}):
        with pytest.raises(PayloadTooLarge, match="headers of task a"):
            client.schedule(1, delay_ms=1, headers=headers, task_id="a")


@pytest.mark.parametrize(
    "payload", [deep(200_000), "\ud800", {"a": "\udfff"}, float("nan"), {1, 2}, object()], ids=type
)
def test_a_payload_that_is_no_json_is_refused_and_those_beside_it_are_stored(
    client: SyncClient, payload: object
) -> None:
    with pytest.raises(TasksRefused) as caught:
        client.schedule_many([
            NewTask(1, delay_ms=60_000, task_id="a"),
            NewTask(payload, delay_ms=60_000, task_id="b"),
            NewTask(2, delay_ms=60_000, task_id="c"),
        ])  # fmt: skip
    assert list(caught.value.refused) == [1]
    assert isinstance(caught.value.refused[1], InvalidTask)
    assert {row.id for row in client.list(State.SCHEDULED)} == {"a", "c"}


def test_huge_numbers_are_stored_as_they_are(client: SyncClient) -> None:
    client.schedule(10**4000, delay_ms=60_000, task_id="a")
    assert known(client, "a").body == str(10**4000).encode()


@pytest.mark.parametrize(
    "moment", [-1, 1 << 47, 10**400, -(10**400), 1.5, "5", True, float("inf")], ids=lambda m: f"{m!r:.20}"
)
@pytest.mark.parametrize("name", ["delay_ms", "due_ms"])
def test_a_moment_that_is_none_is_refused(client: SyncClient, name: str, moment: Any) -> None:  # noqa: ANN401  as above
    with pytest.raises(InvalidDueTime, match=f"{name}: expected a whole number of milliseconds"):
        client.schedule(1, task_id="a", **{name: moment})


def test_the_limit_on_payloads_is_to_the_byte(make: Make) -> None:
    client = make(limits=Limits(max_payload_bytes=1000))
    client.schedule(b"x" * 1000, delay_ms=60_000, task_id="a")
    assert len(known(client, "a").body) == 1000
    with pytest.raises(PayloadTooLarge):
        client.schedule(b"x" * 1001, delay_ms=60_000)
