"""redis-lock where the queue's Redis is a Cluster, or a master that Sentinels watch."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq.errors import GuardBusy, GuardUnavailable
from delayq.guards import RedisLock
from delayq.protocol.commands import Commands

from tests.guards.locks import task
from tests.servers import PREFERRED
from tests.topologies.cluster import Cluster
from tests.topologies.sentinels import Sentinels

if TYPE_CHECKING:
    from pathlib import Path

SHARDS = 12


async def test_in_a_cluster_a_server_that_is_away_holds_up_its_own_tasks_only(tmp_path: Path) -> None:
    cluster = Cluster.start(PREFERRED, dir=tmp_path, replicas=False)
    guard = RedisLock(cluster.url, queue="q", ttl_seconds=6, shards=SHARDS)
    try:
        await guard.check()
        lost = cluster.nodes[1]
        away = [cluster.serving(keys.slot) is lost for keys in Commands("q", shards=SHARDS).shards]
        assert {*away} == {True, False}
        lost.stop()
        await guard.check()
        with pytest.raises(GuardBusy, match=str(lost.port)):
            await guard.begin(replace(task(), shard=away.index(True)))
        async with guard(replace(task(), shard=away.index(False))):
            pass
        for node in cluster.nodes:
            node.stop()
        with pytest.raises(GuardUnavailable):
            await guard.check()
    finally:
        await guard.close()
        cluster.stop()


async def test_a_lock_outlives_its_master_when_a_replica_has_it(tmp_path: Path) -> None:
    sentinels = Sentinels.start(PREFERRED, dir=tmp_path)
    guard, other = (RedisLock(sentinels.url, queue="q", ttl_seconds=120) for _ in range(2))
    try:
        async with guard(task()):
            # WAIT speaks of what its own connection wrote, and replicas take writes in order.
            with sentinels.client() as primary:
                primary.set("mark", 1)
                assert primary.wait(2, 60_000) == 2
            with sentinels.promoting() as promotion:
                sentinels.primary().kill()
                await asyncio.to_thread(promotion.wait)
            await serves(other)
            with pytest.raises(GuardBusy):
                await other.begin(task())
    finally:
        await guard.close()
        await other.close()
        sentinels.stop()


async def serves(guard: RedisLock) -> None:
    async with asyncio.timeout(60):
        while True:
            with suppress(GuardUnavailable):
                return await guard.check()
            await asyncio.sleep(0.05)
