"""Tasks by the thousand, handled by pods: every one is accounted for, and none begins before it is due."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.node.world import NodeWorld, Payload

KINDS: list[tuple[Payload, int]] = [
    ({"do": "nothing"}, 80),
    ({"do": "fail", "times": 1}, 6),
    ({"do": "fail", "times": 2}, 2),
    ({"do": "sleep", "seconds": 0.2}, 8),
    ({"do": "sleep", "seconds": 7}, 1),  # longer than a lease
    ({"do": "fail"}, 2),
    ({"do": "bury"}, 1),
]


def test_many_tasks_run_once_each_and_none_early(world: NodeWorld) -> None:
    """With delays from none to many seconds, failures that are tried again, and dead letters."""
    chance = random.Random(5)
    payloads, weights = zip(*KINDS, strict=True)
    tasks = {f"t{nth}": chance.choices(payloads, weights)[0] for nth in range(1500)}
    world.begin(worker={"replicas": 3, "concurrency": 50}, objective={"latenessMilliseconds": 60000})
    pods = {pod["metadata"]["name"] for pod in world.wait_running(3)}

    def delay_ms() -> int:
        return chance.choice((0, chance.randrange(1000), chance.randrange(10_000)))

    world.schedule(tasks, delay_ms)
    stats = world.account()
    assert stats["claimed"] == len([each for each in world.ledger if each.event == "start"])
    assert {entry.pod for entry in world.ledger} == pods
    world.until("ObjectiveMet", "True")
