"""The reaper's services, step by step, on a real Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.connection import Address, AsyncConnection
from delayq.contract import parse
from delayq.reaper import Reconcile, Sweep

from tests.redis.state import NOW, Shard, State, envelope

if TYPE_CHECKING:
    from delayq.contract import Spec

LATER = NOW + 60_000


def spec(**retention: int) -> Spec:
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": "q"},
        "spec": {
            "redis": {"standalone": {"host": "unused"}},
            "handler": {"exec": {"command": ["true"]}},
            "retention": retention,
        },
    }
    return parse(document).spec


async def one_walk(shard: Shard, url: str) -> Reconcile:
    connection = AsyncConnection(Address.from_url(url))
    reconcile = Reconcile(shard.broker, connection, spec())
    while reconcile.walks == 0:
        await reconcile.step()
    await connection.close()
    return reconcile


async def test_one_walk_adopts_what_is_nowhere_and_leaves_what_is_leased(
    shard: Shard, redis_url: str
) -> None:
    leases = {f"leased-{n}:{n + 1}": LATER for n in range(600)}
    tasks = {member.rpartition(":")[0]: envelope() for member in leases} | {"lost": envelope()}
    before = shard.seed(State(processing=leases, tasks=tasks))
    reconcile = await one_walk(shard, redis_url)
    assert reconcile.mended == {"adopted": 1}
    assert shard.whole() == before.but(delayed={"lost": NOW}, wake=1, stats={"adopted": 1})


async def test_a_sweep_purges_dead_letters_that_are_too_old_or_too_many(shard: Shard, redis_url: str) -> None:
    dead = {"old": NOW - 61_000, "a": NOW - 3000, "b": NOW - 2000, "c": NOW - 1000}
    shard.seed(State(dlq=dead, dlq_info=dict.fromkeys(dead, "1 0 buried x")))
    connection = AsyncConnection(Address.from_url(redis_url))
    sweep = Sweep(shard.broker, connection, spec(deadLetterSeconds=60, deadLetterCount=2))
    await sweep.step()
    await connection.close()
    assert set(shard.whole().dlq) == {"b", "c"}
    assert sweep.done == {"purged": 2}


async def test_a_sweep_takes_back_leases_that_ran_out(shard: Shard, redis_url: str) -> None:
    before = shard.seed(State(processing={"a:7": NOW - 1, "b:8": LATER}))
    connection = AsyncConnection(Address.from_url(redis_url))
    await Sweep(shard.broker, connection, spec()).step()
    await connection.close()
    assert shard.whole() == before.but(
        processing={"b:8": LATER},
        retry={"a": NOW},
        attempts={"a": "0 1 "},
        wake=1,
        stats={"reclaimed": 1},
    )
