"""What tests of single verbs ask for: one shard, and a clock that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.redis.state import Shard, shard_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer


@pytest.fixture
def shard(redis_server: RedisServer, queue_name: str) -> Iterator[Shard]:
    with shard_on(redis_server, queue_name) as shard:
        yield shard
