"""redis-lock where the queue's Redis is a Cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq.errors import GuardBusy, GuardUnavailable
from delayq.guards import RedisLock
from delayq.protocol.commands import Commands

from tests.guards.sql_bank import task
from tests.servers import PREFERRED
from tests.topologies.cluster import Cluster

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
