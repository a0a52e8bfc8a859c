"""erase: a shard is forgotten whole, and nothing else is."""

from __future__ import annotations

from delayq.protocol.commands import Commands
from delayq.protocol.keys import Keys

from tests.redis.state import NOW, Shard, State, seed

FULL = State(
    delayed={"a": NOW, "b": NOW + 5},
    retry={"c": NOW + 9},
    processing={"d:7": NOW + 100},
    dlq={"e": NOW - 9},
    attempts={"c": "1 0 x", "d": "0 1 "},
    dlq_info={"e": "3 1 attempts x"},
    wake=1,
    alarm=1,
    leader=f"scanner-1 {NOW + 5000}",
    stats={"scheduled": 5, "token": 7},
)


def every_key(shard: Shard) -> list[str]:
    found: list[str] = []
    for server in shard.server.all():
        with server.client() as redis:
            found += redis.keys("*")
    return sorted(found)


def test_every_key_of_the_shard_goes_and_is_counted(shard: Shard) -> None:
    shard.seed(FULL)
    shard.redis.hset(shard.keys.cursors, "tasks", 5)
    assert shard.run(shard.commands.erase(0)) == (12, 5)
    assert shard.whole() == State()
    assert shard.run(shard.commands.erase(0)) == (0, 0), "nothing is left"
    assert every_key(shard) == [shard.keys.shard_map], "since when there is no queue; test_epochs.py says why"


def test_queues_and_shards_of_similar_names_are_left_alone(shard: Shard) -> None:
    queue = shard.commands.queue
    others = [
        Keys("delayq", f"{queue}2", 0),
        Keys("delayq", f"x{queue}", 0),
        Keys("delayq", queue, 1),
        Keys("delayq", queue, 10),
        Keys("delayq2", queue, 0),
    ]
    for keys in others:
        seed(shard.server.on(keys), keys, FULL)
    before = every_key(shard)
    shard.seed(FULL)
    shard.run(Commands(queue).erase(0))
    assert every_key(shard) == sorted([*before, shard.keys.shard_map])
