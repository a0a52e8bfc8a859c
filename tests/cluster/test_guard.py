"""A DelayQueue with a guard: what is told and done while its Secret or its database is away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq import SyncClient
from delayq.contract import parse
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import queue_with_code
from tests.databases import Postgres
from tests.processes import delayq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.world import World
    from tests.servers import RedisServer


GUARD: Final[dict[str, Any]] = {"sqlUnique": {"databaseSecretRef": {"name": "shop-db"}}}
HANDLER: Final = """
from sqlalchemy import text
PAY = text("INSERT INTO payments (task) VALUES (:task)")
async def handle(task, connection):
    await connection.execute(PAY, {"task": task.id})
"""


def secret(world: World, name: str, **data: str) -> None:
    world.make("secrets", {"metadata": {"name": name}, "stringData": data})


@dataclass
class Shop:
    """A DelayQueue whose handler writes to the database of its guard."""

    world: World
    redis: RedisServer
    database: Postgres

    def open(self, **spec: Any) -> None:  # noqa: ANN401  parts of a document
        world = self.world
        secret(world, "shop-db", url=self.database.url())
        self.document = queue_with_code(
            *(world.cluster, world.namespace, self.redis, HANDLER),
            guard=GUARD,
            scanner={"replicas": 1},
            worker={"concurrency": 2},
            **spec,
        )
        world.make(names.PLURAL, self.document)

    def init(self) -> None:
        """Make the tables: delayq's, and the shop's."""
        assert delayq("guard", "init", "--database", self.database.url()).wait(timeout_s=60) == 0
        self.database.sql("CREATE TABLE payments (task text)")

    def schedule(self, tasks: int) -> set[str]:
        with SyncClient(self.redis.url, queue=parse(self.document).queue) as client:
            return {client.schedule({}, delay_ms=0).id for _ in range(tasks)}

    def paid(self) -> list[str]:
        return sorted(task for (task,) in self.database.sql("SELECT task FROM payments"))

    def until_paid(self, ids: set[str]) -> None:
        """Each once: a second time would be a row more."""
        eventually(lambda: self.paid() == sorted(ids), timeout_s=60, what="all tasks took effect, once")

    def kept(self) -> bool:
        """Whether the number of workers is said to be the one there is, whatever the work asks for."""
        told = self.world.until("ScalingActive", "False", "GuardUnreachable")["message"]
        workers = int(self.world.get("deployments", "orders-worker")["spec"]["replicas"])
        assert told.startswith(f"{workers} worker"), (told, workers)
        return "kept: two or more workers run and none can use the guard" in told


@pytest.fixture
def shop(world: World, redis: RedisServer, tmp_path: Path) -> Iterator[Shop]:
    database = Postgres.start(tmp_path / "database")
    yield Shop(world, redis, database)
    database.kill()


@pytest.mark.usefixtures("process_node")
def test_a_guard_that_is_away_is_told_and_nothing_runs_or_is_scaled_until_it_is_back(shop: Shop) -> None:
    """From a table that was not made, to a database that dies under load and returns: every task takes effect once."""
    world = shop.world
    shop.open(autoscaling={"minReplicas": 2, "maxReplicas": 4})  # one alone would not be believed

    def of_both(kind: str, reason: str) -> str:
        told = str(world.until(kind, "False", reason, timeout_s=60)["message"])
        return told if told.startswith("0 of 2 workers can use the guard") else ""

    told = eventually(lambda: of_both("GuardAvailable", "Unreachable"), timeout_s=60)
    assert "Secret shop-db" in told
    assert eventually(lambda: of_both("Ready", "GuardUnreachable")) == told
    shop.init()
    world.until("GuardAvailable", "True", "Connected", timeout_s=40)
    world.event("GuardAvailable")
    world.until("Ready", "True", timeout_s=60)
    world.until("ScalingActive", "True", "ValidMetricFound", timeout_s=60)
    first = shop.schedule(3)
    shop.until_paid(first)

    shop.database.kill()
    world.until("GuardAvailable", "False", "Unreachable", timeout_s=60)
    world.event("GuardUnavailable", "Secret shop-db")
    world.until("Ready", "False", "GuardUnreachable")
    second = shop.schedule(400)  # enough for all four, if anybody decided
    world.until("ObjectiveMet", "False", "GuardUnreachable", timeout_s=60)
    eventually(shop.kept, what="the number of workers is kept, and told")

    shop.database.restart()
    world.until("GuardAvailable", "True", timeout_s=40)
    shop.until_paid(first | second)
    world.until("Ready", "True", timeout_s=60)
