"""What docs/redis.md has people put into redis.conf, put into a Redis."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient, Unavailable
from delayq.connection import Address, SyncConnection
from delayq.contract import Delivery
from delayq.durability import QUESTIONS, risks, told

from tests.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "redis.md").read_text()
KEEPING, REPLICATED = (
    dict(line.split(" ", 1) for line in block.splitlines())
    for block in re.findall(r"```\n(.*?)```", PAGE.split("## Persistence")[1].split("\n## ")[0], re.DOTALL)
)


@pytest.fixture
def server(flavour: str, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer.start(flavour, dir=tmp_path / "redis", config=KEEPING)
    yield server
    server.stop()


def test_a_redis_set_up_as_the_page_says_is_at_no_risk(server: RedisServer) -> None:
    connection = SyncConnection(Address.from_url(server.url))
    try:
        assert risks(told(connection.send(QUESTIONS)), Delivery()) == frozenset()
    finally:
        connection.close()


def test_a_primary_without_replicas_takes_nothing_once_it_should_have_some(server: RedisServer) -> None:
    with server.client() as redis:
        for name, value in REPLICATED.items():
            redis.config_set(name, value)
    with SyncClient(server.url, queue="cut-off") as client, pytest.raises(Unavailable) as refused:
        client.schedule(None, delay_ms=1000)
    assert refused.value.outage == "no_replicas"
