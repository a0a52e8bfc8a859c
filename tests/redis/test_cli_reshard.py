"""What counts and doctor say while a queue's number of shards changes, and after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.shard_map import ShardMap

from tests.redis.commands import LATER, answer, on
from tests.redis.state import Shard, State, seed, shard_on
from tests.redis.test_cli_doctor import DOCUMENT
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RedisServer

SETTLED, ANNOUNCED, MOVING = ShardMap(1, 2, 2, 2, 2), ShardMap(2, 2, 2, 3, 3), ShardMap(3, 3, 2, 3, 3)


@pytest.fixture
def orders(redis_server: RedisServer) -> Iterator[Shard]:
    with shard_on(redis_server, "orders", shards=3) as shard:
        yield shard


@pytest.mark.parametrize(
    ("shard_map", "note"),
    [
        (SETTLED, ""),
        (ANNOUNCED, "note: orders is about to have 3 shards instead of 2\n"),
        (MOVING, "note: tasks of orders move from 2 to 3 shards\n"),
    ],
)
def test_counts_say_that_shards_change_and_count_them_all(
    orders: Shard, shard_map: ShardMap, note: str
) -> None:
    orders.run(orders.commands.sync_shard_map(0, shard_map))
    for shard in range(shard_map.shards_in_use):
        seed(orders.redis, orders.commands.keys(shard), State(delayed={f"t{shard}": LATER}))
    result = on(orders, "status", "orders")
    assert result.stderr == note
    assert result.stdout.splitlines()[1].split()[:2] == ["orders", str(shard_map.shards_in_use)]


def test_counters_do_not_fall_when_shards_are_dropped(orders: Shard) -> None:
    for shard in range(3):
        seed(orders.redis, orders.commands.keys(shard), State(stats={"acked": 10 + shard}))
    orders.run(orders.commands.sync_shard_map(0, ShardMap(7, 2, 2, 2, 3)))
    assert answer(orders, "status", "orders")["stats"]["acked"] == 33


def found_by_doctor(orders: Shard, directory: Path) -> dict[str, Any]:
    """What doctor finds, by check, of a document that says four shards."""
    port = str(orders.redis.connection_pool.connection_kwargs["port"])
    path = directory / "queue.yaml"
    path.write_text(DOCUMENT.replace("PORT", port) + "  shards: 4\n")
    found = json.loads(run("doctor", str(path), "-o", "json").stdout)
    return {each["check"]: each for each in found}


@pytest.mark.parametrize(
    ("shard_map", "said"),
    [
        (ANNOUNCED, ("ok", "2, about to become 3 shards; tasks run meanwhile")),
        (MOVING, ("ok", "tasks move from 2 to 3 shards; tasks run meanwhile")),
        (SETTLED, ("warning", "the document says 4, the queue has 2")),
    ],
)
def test_doctor_says_how_the_shards_are(
    orders: Shard, tmp_path: Path, shard_map: ShardMap, said: tuple[str, str]
) -> None:
    orders.run(orders.commands.sync_shard_map(0, shard_map))
    found = found_by_doctor(orders, tmp_path)["shards"]
    assert (found["level"], found["message"]) == said


def test_doctor_says_nothing_of_shards_that_are_as_the_document_says(orders: Shard, tmp_path: Path) -> None:
    orders.run(orders.commands.sync_shard_map(0, ShardMap.first(4)))
    assert "shards" not in found_by_doctor(orders, tmp_path)
