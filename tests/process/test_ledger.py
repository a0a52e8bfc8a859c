"""Workers, scanners and reapers are killed and frozen at random under load; then every single task is accounted for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq import NewTask

from tests.process.fleet import check_runs

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet, Role
    from tests.processes import Process

TASKS = 6_000
LEASE_SECONDS = 1
CHAOS_SECONDS = 15.0
SPEC = {
    "worker": {"concurrency": 50},
    "delivery": {
        "leaseDurationSeconds": LEASE_SECONDS,
        "maxAttempts": 3,
        "maxCrashes": 1000,  # here only handlers decide what dies, so the dead are known beforehand
        "backoff": {"delaysSeconds": [0, 1]},
    },
}
ROLES: tuple[Role, ...] = ("worker", "worker", "worker", "scanner", "scanner", "reaper", "reaper")
DOOMED = [{"do": "fail"}, {"do": "bury"}]
KINDS = [
    ({"do": "nothing"}, 80),
    ({"do": "fail", "times": 1}, 8),
    ({"do": "sleep", "seconds": 0.2}, 8),
    ({"do": "sleep", "seconds": 2.5}, 1),  # longer than a lease
    (DOOMED[0], 2),
    (DOOMED[1], 1),
]


def mixed(chance: random.Random) -> Iterator[NewTask]:
    payloads, weights = zip(*KINDS, strict=True)
    for nth in range(TASKS):
        delay_ms = chance.choice((0, chance.randrange(1000), chance.randrange(int(CHAOS_SECONDS * 1000))))
        yield NewTask(chance.choices(payloads, weights)[0], delay_ms=delay_ms, task_id=f"t{nth}")


@dataclass
class Chaos:
    """Hurts one process after the other. Frozen ones go on after their lease has run out."""

    fleet: Fleet
    chance: random.Random
    crew: list[tuple[Role, Process]]
    frozen: dict[int, float] = field(default_factory=dict)
    """Until when, by the place in the crew."""

    def hurt(self) -> None:
        nth = self.chance.randrange(len(self.crew))
        role, process = self.crew[nth]
        if nth in self.frozen:
            return
        if self.chance.random() < 0.6:
            process.kill()
            self.crew[nth] = role, self.fleet.start(role, ready=False)
        else:
            process.pause()
            self.frozen[nth] = time.monotonic() + LEASE_SECONDS * self.chance.uniform(0.5, 3)

    def thaw(self, now: float) -> None:
        for nth in [nth for nth, at in self.frozen.items() if at <= now]:
            self.crew[nth][1].resume()
            del self.frozen[nth]

    def rage(self, redis: Redis, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.hurt()
            time.sleep(self.chance.uniform(0.1, 1.2))
            self.thaw(time.monotonic())
            self.fleet.snapshot(redis).check()
        self.thaw(float("inf"))


def test_every_task_is_accounted_for_after_kills_and_freezes_at_random(
    new_fleet: NewFleet, chance: random.Random
) -> None:
    fleet = new_fleet(SPEC)
    tasks = list(mixed(chance))
    chaos = Chaos(fleet, chance, list(zip(ROLES, fleet.start_all(*ROLES), strict=True)))
    with fleet.client() as client, fleet.server.client() as redis:
        scheduled = client.schedule_many(tasks[: TASKS // 2])
        chaos.rage(redis, CHAOS_SECONDS / 2)
        scheduled += client.schedule_many(tasks[TASKS // 2 :])
        chaos.rage(redis, CHAOS_SECONDS / 2)
        fleet.wait_drained(redis)
        starts = fleet.starts()
        assert [each.id for each in scheduled if starts[each.id][0].at_ms < each.due_ms] == []
        account(fleet, redis, {str(task.task_id): task.payload for task in tasks})


def account(fleet: Fleet, redis: Redis, payloads: dict[str, Any]) -> None:
    """Done or dead, each exactly once, and as its payload has it."""
    snapshot, stats, starts = fleet.snapshot(redis), fleet.stats(redis), fleet.starts()
    snapshot.check()
    doomed = {task_id for task_id, payload in payloads.items() if payload in DOOMED}
    assert set(snapshot.dlq) == doomed
    assert stats["scheduled"] == len(payloads)
    assert stats["acked"] == len(payloads) - len(doomed)
    assert stats["buried"] == len(doomed)
    assert set(starts) == set(payloads)
    check_runs(starts)
    assert fleet.ended() == set(payloads) - doomed
    again = sum(len(runs) - 1 for runs in starts.values())
    print(f"kills={len(fleet.processes) - len(ROLES)} repeated={again} stats={dict(stats)}")
