"""A DelayQueue with a guard: what is reported and done while its Secret or its database is away."""

from __future__ import annotations

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


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Postgres]:
    database = Postgres.start(tmp_path / "database")
    yield database
    database.kill()


def kept(world: World) -> bool:
    """Whether the number of workers is kept, independent of the work."""
    reported = world.until("ScalingActive", "False", "GuardUnreachable")["message"]
    workers = int(world.get("deployments", "orders-worker")["spec"]["replicas"])
    assert reported.startswith(f"{workers} worker"), (reported, workers)
    return "kept: two or more workers run and none can use the guard" in reported


@pytest.mark.usefixtures("process_node")
def test_a_guard_that_is_away_is_reported_and_nothing_runs_or_is_scaled_until_it_is_back(
    world: World, redis: RedisServer, database: Postgres
) -> None:
    """From a table that was not made, to a database that dies under load and returns: every task takes effect once."""
    world.make("secrets", {"metadata": {"name": "shop-db"}, "stringData": {"url": database.url()}})
    document = queue_with_code(
        *(world.cluster, world.namespace, redis, HANDLER),
        guard=GUARD,
        scanner={"replicas": 1},
        worker={"concurrency": 2},
        autoscaling={"minReplicas": 2, "maxReplicas": 4},  # one alone would not be believed
    )
    world.make(names.PLURAL, document)

    def of_both(kind: str, reason: str) -> str:
        reported = str(world.until(kind, "False", reason, timeout_s=60)["message"])
        return reported if reported.startswith("0 of 2 workers can use the guard") else ""

    def paid() -> bool:
        """Each task once: a second time would be a row more."""
        return sorted(task for (task,) in database.sql("SELECT task FROM payments")) == sorted(ids)

    reported = eventually(lambda: of_both("GuardAvailable", "Unreachable"), timeout_s=60)
    assert "Secret shop-db" in reported
    assert eventually(lambda: of_both("Ready", "GuardUnreachable")) == reported
    assert delayq("guard", "init", "--database", database.url()).wait(timeout_s=60) == 0
    database.sql("CREATE TABLE payments (task text)")
    world.until("GuardAvailable", "True", "Connected", timeout_s=40)
    world.event("GuardAvailable")
    world.until("Ready", "True", timeout_s=60)
    world.until("ScalingActive", "True", "ValidMetricFound", timeout_s=60)
    with SyncClient(redis.url, queue=parse(document).queue) as client:
        ids = [client.schedule({}, delay_ms=0).id for _ in range(3)]
        eventually(paid, timeout_s=60, what="all tasks took effect, once")
        database.kill()
        world.until("GuardAvailable", "False", "Unreachable", timeout_s=60)
        world.event("GuardUnavailable", "Secret shop-db")
        world.until("Ready", "False", "GuardUnreachable")
        ids += [
            client.schedule({}, delay_ms=0).id for _ in range(400)
        ]  # enough for all four, if a decision were made
    world.until("ObjectiveMet", "False", "GuardUnreachable", timeout_s=60)
    eventually(lambda: kept(world), what="the number of workers is kept, and reported")

    database.restart()
    world.until("GuardAvailable", "True", timeout_s=40)
    eventually(paid, timeout_s=60, what="all tasks took effect, once")
    world.until("Ready", "True", timeout_s=60)
