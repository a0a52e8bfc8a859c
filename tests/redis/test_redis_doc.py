"""What docs/how-to/redis.md has people put into redis.conf, put into a Redis."""

from __future__ import annotations

import re
from contextlib import closing
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
from tests.topologies.kinds import stopping

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
    started = RedisServer.start(flavour, dir=tmp_path / "redis", config=KEEPING, config_get=True)
    with stopping(started) as server:
        yield server


def test_a_redis_set_up_as_the_page_says_is_at_no_risk(server: RedisServer) -> None:
    with closing(SyncConnection(Address.from_url(server.url))) as connection:
        assert risks(server_info(connection.send(QUESTIONS)), DurabilitySpec()) == frozenset()


@pytest.mark.slow
def test_a_cluster_goes_on_without_a_slot_with_the_setting_of_the_page_and_not_without(
    flavour: str, tmp_path: Path
) -> None:
    started = Cluster.start(flavour, dir=tmp_path, replicas=False, config=WHOLE)
    with stopping(started) as cluster, SyncClient(cluster.url, queue="orders") as client:
        client.schedule(None, delay_ms=HOUR_MS, task_id="a")
        cluster.lose((Commands("orders").keys(0).slot + 1) % SLOTS)
        assert client.get("a") is not None
        for node in cluster.nodes:
            with node.client() as redis:
                for name in WHOLE:
                    redis.config_set(name, "yes")  # as Redis has it
        cluster.lose((Commands("orders").keys(0).slot + 2) % SLOTS)
        impatient = replace(Address.from_url(cluster.url), timeout_seconds=0.2)
        with SyncClient(impatient, queue="orders") as other, pytest.raises(Unavailable, match="CLUSTERDOWN"):
            other.get("a")


def test_a_primary_without_replicas_takes_nothing_once_it_should_have_some(server: RedisServer) -> None:
    with server.client() as redis:
        for name, value in REPLICATED.items():
            redis.config_set(name, value)
    with SyncClient(server.url, queue="cut-off") as client, pytest.raises(Unavailable) as refused:
        client.schedule(None, delay_ms=1000)
    assert refused.value.outage == "no_replicas"
