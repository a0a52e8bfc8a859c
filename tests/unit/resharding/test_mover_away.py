"""A mover whose Redis is away has no success until it is back: an outage is not told anew each second."""

from __future__ import annotations

import pytest
from delayq.connection import Address, AsyncConnection
from delayq.errors import Unavailable
from delayq.protocol.commands import Broker
from delayq.protocol.shard_map import Layout
from delayq.resharding.migrator import Mover
from delayq.service.shard_groups import lanes

NOBODY = "redis://127.0.0.1:1"


async def test_to_rest_after_a_failure_is_no_success() -> None:
    broker, connection = Broker("orders"), AsyncConnection(Address.from_url(NOBODY))
    broker.follow(Layout.first(1))
    [lane] = lanes(broker, apart=False)
    mover = Mover(lane, connection, led=lambda: {0})
    try:
        for _ in range(3):
            with pytest.raises(Unavailable):
                await mover.step()
    finally:
        await connection.close()
