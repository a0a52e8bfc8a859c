"""What docs/how-to/redis.md has people put into redis.conf, put into a Redis."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient, Unavailable
from delayq.connection import Address, SyncConnection
from delayq.contract.durability import DurabilitySpec
from delayq.protocol.commands import Commands
from delayq.protocol.keys import SLOTS
from delayq.scanner.durability import QUESTIONS, risks, server_info

from tests.servers import RedisServer
from tests.topologies.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_MS = 3_600_000
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "redis.md").read_text()
KEEPING, WHOLE, REPLICATED = (
    dict(line.split(" ", 1) for line in block.splitlines())
    for block in re.findall(r"```\n(.*?)```", PAGE.split("## Persistence")[1].split("\n## ")[0], re.DOTALL)
)


@pytest.fixture
def server(flavour: str, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer.start(flavour, dir=tmp_path / "redis", config=KEEPING, config_get=True)
    yield server
    server.stop()


def test_a_redis_set_up_as_the_page_says_is_at_no_risk(server: RedisServer) -> None:
    connection = SyncConnection(Address.from_url(server.url))
    try:
        assert risks(server_info(connection.send(QUESTIONS)), DurabilitySpec()) == frozenset()
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(("config", "goes_on"), [(WHOLE, True), (dict.fromkeys(WHOLE, "yes"), False)])
def test_a_cluster_set_up_as_the_page_says_goes_on_without_a_slot(
    flavour: str, tmp_path: Path, config: dict[str, str], *, goes_on: bool
) -> None:
    cluster = Cluster.start(flavour, dir=tmp_path, replicas=False, config=config)
    try:
        with SyncClient(cluster.url, queue="orders") as client:
            client.schedule(None, delay_ms=HOUR_MS, task_id="a")
            cluster.lose((Commands("orders").keys(0).slot + 1) % SLOTS)
            if goes_on:
                assert client.get("a") is not None
        if not goes_on:
            impatient = replace(Address.from_url(cluster.url), timeout_seconds=0.2)
            with (
                SyncClient(impatient, queue="orders") as client,
                pytest.raises(Unavailable, match="CLUSTERDOWN"),
            ):
                client.get("a")
    finally:
        cluster.stop()


def test_a_primary_without_replicas_takes_nothing_once_it_should_have_some(server: RedisServer) -> None:
    with server.client() as redis:
        for name, value in REPLICATED.items():
            redis.config_set(name, value)
    with SyncClient(server.url, queue="cut-off") as client, pytest.raises(Unavailable) as refused:
        client.schedule(None, delay_ms=1000)
    assert refused.value.outage == "no_replicas"
