"""A migrator whose Redis is away has no success until it is back: an outage is not logged again each second."""

from __future__ import annotations

import pytest
from delayq.connection import Address, AsyncConnection
from delayq.errors import Unavailable
from delayq.protocol.commands import Commands
from delayq.protocol.shard_map import ShardMap
from delayq.resharding.migrator import Migrator
from delayq.service.shard_groups import groups

ABSENT = "redis://127.0.0.1:1"


async def test_to_rest_after_a_failure_is_no_success() -> None:
    commands, connection = Commands("orders"), AsyncConnection(Address.from_url(ABSENT))
    commands.use_shard_map(ShardMap.first(1))
    [group] = groups(commands, is_cluster=False)
    migrator = Migrator(group, connection, led=lambda: {0})
    try:
        for _ in range(3):
            with pytest.raises(Unavailable):
                await migrator.step()
    finally:
        await connection.close()
