"""Both clients: what the limits of a queue refuse, and what stands in the way of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq import (
    DelayTooLong,
    PayloadTooLarge,
    QueueFull,
    SyncClient,
)
from delayq.contract import Limits
from delayq.protocol.commands import Commands
from delayq.protocol.results import Cancelled, Outcome

from tests.redis.state import known, tasks

if TYPE_CHECKING:
    from tests.redis.conftest import Make
    from tests.servers import RedisServer


def test_a_payload_and_headers_may_be_as_large_as_the_limit_and_no_larger(
    make: Make, redis_server: RedisServer
) -> None:
    client = make(limits=Limits(max_payload_bytes=100, max_header_bytes=10))
    with pytest.raises(PayloadTooLarge, match="payload of task a is 101 bytes, the limit is 100"):
        client.schedule("x" * 99, delay_ms=1, task_id="a")
    for payload in ("ü" * 50, b"x" * 101):
        with pytest.raises(PayloadTooLarge, match="payload of task"):
            client.schedule(payload, delay_ms=1)
    for bad in (
        {"headers": {"name": "valuex"}, "content_type": "a/b"},
        {"content_type": "x" * 11},
        {"headers": {"ü": "ü" * 5}},
    ):
        with pytest.raises(PayloadTooLarge, match="headers of task"):
            client.schedule(b"", delay_ms=1, **bad)
    with redis_server.client() as redis:
        assert redis.dbsize() == 0
    client.schedule("x" * 98, delay_ms=1, headers={"name": "valuex"})
    client.schedule(b"x" * 100, delay_ms=1, content_type="a/b")


def test_headers_that_would_not_fit_into_a_variable_of_a_command_are_refused(make: Make) -> None:
    """Linux takes 128 KiB: 65,536 bytes fit, but not if JSON escapes each, nor in as many small headers."""
    client = make(limits=Limits(max_header_bytes=65_536))
    many = {f"{number:x}": "" for number in range(16_000)}
    for headers in ({"a": "\x01" * 21_842}, many):
        with pytest.raises(
            PayloadTooLarge, match=r"^headers, as JSON, of task a is 1\d\d,\d\d\d bytes, the limit is 131,056"
        ):
            client.schedule(None, delay_ms=1, task_id="a", headers=headers)
    for headers in ({"a": "\x01" * 21_841}, {"a": "é" * 32_000}):
        client.schedule(None, delay_ms=1, headers=headers)


def test_a_full_queue_and_a_far_due_time_are_refused_and_leave_nothing(make: Make) -> None:
    client = make(limits=Limits(max_length=2, max_delay_seconds=100))
    with pytest.raises(DelayTooLong, match="maxDelaySeconds = 100"):
        client.schedule(None, delay_ms=100_001, task_id="a")
    client.schedule_many(tasks(2))
    with pytest.raises(QueueFull, match="maxLength = 2"):
        client.schedule(None, delay_ms=1, task_id="more")
    assert client.get("a") is client.get("more") is None
    client.cancel("t0")
    client.schedule(None, delay_ms=100_000, task_id="more")
    with pytest.raises(DelayTooLong):
        client.reschedule("more", delay_ms=100_001)


def test_a_queue_without_max_bytes_takes_two_gibibytes_and_one_that_has_more_keeps_it(
    make: Make, redis_server: RedisServer
) -> None:
    """As after an upgrade: what is stored runs, and new tasks are refused until maxBytes is raised or some are done."""
    client = make()
    keys = Commands(client.queue).keys(0)
    client.schedule(1, delay_ms=60_000, task_id="before")
    with redis_server.on(keys) as redis:
        redis.hset(keys.stats, "bytes", 3 << 30)
    with pytest.raises(QueueFull, match="maxBytes = 2,147,483,648 bytes"):
        client.schedule(2, delay_ms=60_000, task_id="more")
    assert client.reschedule("before", delay_ms=1).outcome == "rescheduled"
    larger = make(limits=Limits(max_bytes=4 << 30))
    assert larger.schedule(2, delay_ms=60_000, task_id="more").outcome is Outcome.CREATED


def test_a_running_task_cannot_be_moved_or_cancelled_but_followed(
    client: SyncClient, redis_server: RedisServer
) -> None:
    client.schedule(1, delay_ms=0, task_id="a")
    keys = Commands(client.queue).keys(0)
    with redis_server.on(keys) as redis:
        redis.zrem(keys.delayed, "a")
        redis.zadd(keys.processing, {"a:7": redis_server.now_ms() + 60_000})
    assert client.reschedule("a", delay_ms=1).outcome == "in_flight"
    assert client.schedule(2, delay_ms=1000, task_id="a", if_exists="replace").outcome is Outcome.FOLLOWS
    moved = client.reschedule("a", delay_ms=9000)
    view = known(client, "a")
    assert (moved.outcome, view.body, view.follow_up_due_ms) == ("rescheduled", b"1", moved.due_ms)
    assert client.cancel("a") is Cancelled.FOLLOW_UP_CANCELLED
    assert client.cancel("a") is Cancelled.IN_FLIGHT
    assert known(client, "a").follow_up_due_ms is None
