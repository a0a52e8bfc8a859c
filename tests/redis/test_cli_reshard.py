"""What counts and doctor say while a queue's number of shards changes, and after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.shard_map import Layout

from tests.redis.commands import LATER, answer, on
from tests.redis.state import Shard, State, seed, shard_on
from tests.redis.test_cli_doctor import DOCUMENT
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RedisServer

SETTLED, ANNOUNCED, MOVING = Layout(1, 2, 2, 2, 2), Layout(2, 2, 2, 3, 3), Layout(3, 3, 2, 3, 3)


@pytest.fixture
def orders(redis_server: RedisServer) -> Iterator[Shard]:
    with shard_on(redis_server, "orders", shards=3) as shard:
        yield shard


@pytest.mark.parametrize(
    ("layout", "note"),
    [
        (SETTLED, ""),
        (ANNOUNCED, "note: orders is about to have 3 shards instead of 2\n"),
        (MOVING, "note: tasks of orders move from 2 to 3 shards\n"),
    ],
)
def test_counts_say_that_shards_change_and_count_them_all(orders: Shard, layout: Layout, note: str) -> None:
    orders.run(orders.broker.tell(0, layout))
    for shard in range(layout.covers):
        seed(orders.redis, orders.broker.keys(shard), State(delayed={f"t{shard}": LATER}))
    result = on(orders, "counts", "orders")
    assert result.stderr == note
    assert result.stdout.splitlines()[1].split()[:2] == ["orders", str(layout.covers)]


def test_counters_do_not_fall_when_shards_are_dropped(orders: Shard) -> None:
    for shard in range(3):
        seed(orders.redis, orders.broker.keys(shard), State(stats={"acked": 10 + shard}))
    orders.run(orders.broker.tell(0, Layout(7, 2, 2, 2, 3)))
    assert answer(orders, "counts", "orders")["stats"]["acked"] == 33


def found_by_doctor(orders: Shard, directory: Path) -> dict[str, Any]:
    """What doctor finds, by check, of a document that says four shards."""
    port = str(orders.redis.connection_pool.connection_kwargs["port"])
    path = directory / "queue.yaml"
    path.write_text(DOCUMENT.replace("PORT", port) + "  shards: 4\n")
    found = json.loads(run("doctor", str(path), "-o", "json").stdout)
    return {each["check"]: each for each in found}


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (ANNOUNCED, ("ok", "2, about to become 3 shards; nothing waits for it")),
        (MOVING, ("ok", "tasks move from 2 to 3 shards; nothing waits for it")),
        (SETTLED, ("warning", "the document says 4, the queue has 2")),
    ],
)
def test_doctor_says_how_the_shards_are(
    orders: Shard, tmp_path: Path, layout: Layout, said: tuple[str, str]
) -> None:
    orders.run(orders.broker.tell(0, layout))
    found = found_by_doctor(orders, tmp_path)["shards"]
    assert (found["level"], found["message"]) == said


def test_doctor_says_nothing_of_shards_that_are_as_the_document_says(orders: Shard, tmp_path: Path) -> None:
    orders.run(orders.broker.tell(0, Layout.first(4)))
    assert "shards" not in found_by_doctor(orders, tmp_path)
