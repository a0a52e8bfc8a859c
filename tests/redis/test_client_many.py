"""Both clients: any number of tasks at once, and the whole queue at a glance."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq import (
    DelayTooLong,
    InvalidDueTime,
    InvalidTask,
    NewTask,
    PayloadTooLarge,
    TaskExists,
    TasksRefused,
)
from delayq.connection import Address
from delayq.contract import Limits
from delayq.protocol.results import State as In

from tests.redis.state import tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.redis.conftest import Make
    from tests.servers import RedisServer


@pytest.mark.parametrize("shards", [1, 3])
def test_any_number_of_tasks_from_a_generator_is_stored_in_order(make: Make, shards: int) -> None:
    client = make(shards=shards)
    for count in (0, 1, 500, 501, 1201):
        stored = client.schedule_many(tasks(count), if_exists="replace")
        assert [each.id for each in stored] == [f"t{n}" for n in range(count)]
        assert client.counts().waiting == count


@pytest.mark.parametrize("shards", [1, 3])
def test_refusals_among_many_are_reported_by_position_and_all_others_are_stored(
    make: Make, shards: int
) -> None:
    client = make(shards=shards, limits=Limits(max_delay_seconds=100, max_payload_bytes=10))
    client.schedule(None, delay_ms=60_000, task_id="t3")
    given_tasks = list(tasks(1200))
    given_tasks[7] = NewTask(None, delay_ms=1.5)  # type: ignore[arg-type]
    given_tasks[8] = NewTask({1, 2}, delay_ms=1)
    given_tasks[600] = NewTask("x" * 20, delay_ms=1)
    given_tasks[1100] = NewTask(None, delay_ms=100_001)
    given_tasks[1199] = NewTask(None, delay_ms=1, task_id="a b")
    with pytest.raises(
        TasksRefused, match="6 refused, 1,194 scheduled; the first: task t3 exists already"
    ) as error:
        client.schedule_many(given_tasks)
    refused = error.value.refused
    assert [(at, type(each)) for at, each in refused.items()] == [
        (3, TaskExists), (7, InvalidDueTime), (8, InvalidTask),
        (600, PayloadTooLarge), (1100, DelayTooLong), (1199, InvalidTask),
    ]  # fmt: skip
    assert len(error.value.scheduled) == 1194
    assert client.counts().waiting == 1195


def test_a_generator_that_fails_half_way_fails_for_the_caller(make: Make, redis_server: RedisServer) -> None:
    """What was sent before is stored, and the client works on."""
    client = make(replace(Address.from_url(redis_server.url), max_connections=4))

    def broken() -> Iterator[NewTask]:
        yield from tasks(1200)
        raise LookupError("no more")

    for _ in range(6):  # more often than a synchronous client has connections
        with pytest.raises(LookupError, match="no more"):
            client.schedule_many(broken(), if_exists="replace")
    assert client.counts().waiting == 1000


@pytest.mark.parametrize("shards", [1, 3])
def test_counts_and_pages_are_of_all_shards_together(make: Make, shards: int) -> None:
    client = make(shards=shards)
    # None falls due while the shards are counted, one after the other.
    delays = [0 if n < 3 else 60_000 + n * 100 for n in range(1000)]
    stored = client.schedule_many(
        NewTask(n, delay_ms=delay, task_id=f"t{n}") for n, delay in enumerate(delays)
    )
    counts = client.counts(horizons_ms=[110_050])
    assert (counts.waiting, counts.stats["scheduled"]) == (1000, 1000)
    assert counts.due == 3
    assert counts.due + counts.due_within[110_050] == pytest.approx(501, abs=50)
    assert counts.oldest_due_ms is not None
    assert counts.next_due_ms is not None
    assert counts.oldest_due_ms <= counts.now_ms <= counts.next_due_ms
    pages = [client.list(In.SCHEDULED, offset=at, limit=300) for at in range(0, 1200, 300)]
    assert [len(page) for page in pages] == [300, 300, 300, 100]
    rows = [row for page in pages for row in page]
    assert [row.at_ms for row in rows] == sorted(each.due_ms for each in stored)
    assert {row.id for row in rows} == {each.id for each in stored}
    assert client.list(In.RETRYING) == []
