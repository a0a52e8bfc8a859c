"""A call of several tasks that ends its process halfway: each task is accounted for, and only the poison is buried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq import NewTask

from tests.process.batch_recorder import POISON
from tests.process.test_suspects import settled, work_until

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet

ROWS = range(8)


def test_only_the_task_that_ends_the_process_halfway_through_a_call_is_buried(new_fleet: NewFleet) -> None:
    fleet = new_fleet(
        {
            "handler": {"python": {"app": "batch_recorder:app"}},
            "worker": {"concurrency": 8},
            "delivery": {"leaseDurationSeconds": 1, "maxCrashes": 1},
        },
        environment={"LEDGER_POISON": "1"},
    )
    fleet.start("scanner")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(
            NewTask(row, task_id=f"store:{row}", delay_ms=0, kind="store", version=1) for row in ROWS
        )
        died = work_until(fleet, lambda: settled(fleet, redis), "all is done but the poison task")
        fleet.snapshot(redis).check()
        assert fleet.snapshot(redis).dlq == [f"store:{POISON}"]
        assert fleet.stats(redis)["acked"] == len(ROWS) - 1
        dead = client.get(f"store:{POISON}")
    assert dead is not None
    assert (dead.failed.reason, dead.failed.crashes, dead.failed.failures) == ("crashes", died, 0)
    rows = [int(line) for line in (fleet.ledger_dir / "rows").read_text().split()]
    assert set(rows) | {POISON} == set(ROWS)
