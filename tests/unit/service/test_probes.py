"""/healthz and /readyz of loops that are stuck or fail."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from delayq.service.loop import STUCK_AFTER_SECONDS
from delayq.service.probes import Probes


@dataclass
class StillLoop:
    """What probes see of a loop."""

    name: str
    works: bool = True
    group: str | None = None
    part: bool = False
    stuck_seconds: float = 0.0
    queue: str = "orders"
    waits_for: str = ""

    @property
    def service(self) -> StillLoop:
        return self

    def ready(self, _within_seconds: float) -> bool:
        return self.works


async def ask(probe: str, loops: tuple[StillLoop, ...]) -> tuple[int, str]:
    process: Any = SimpleNamespace(loops=list(loops))

    async def no_metrics(_: object) -> list[Any]:
        return []

    response = await getattr(Probes(process, no_metrics), probe)({})
    return response.status, str(response.body)


async def test_healthz_names_the_loop_that_is_stuck() -> None:
    fine, stuck = StillLoop("fine"), StillLoop("hangs", stuck_seconds=STUCK_AFTER_SECONDS + 1)
    assert await ask("healthz", (fine,)) == (200, "ok\n")
    assert await ask("healthz", (fine, stuck)) == (500, "stuck: hangs\n")


def of_groups(*failing: str) -> tuple[StillLoop, ...]:
    """A loop for all, and two shard groups."""
    groups = {"every": None, "one": "1", "other": "2", "two": "2"}
    return tuple(StillLoop(name, name not in failing, group) for name, group in groups.items())


def of_parts(*failing: str) -> tuple[StillLoop, ...]:
    """A shard group with a loop for the whole of it and one for each shard."""
    parts = {"lead": False, "scan-0": True, "scan-1": True}
    return tuple(StillLoop(name, name not in failing, "all", part) for name, part in parts.items())


@pytest.mark.parametrize(
    ("loops", "failing"),
    [
        (of_groups(), ""),
        (of_groups("two"), ""),
        (of_groups("one", "two"), "one, two"),
        (of_groups("two", "every"), "every"),
        (of_parts("scan-0"), ""),
        (of_parts("scan-0", "scan-1"), "scan-0, scan-1"),
        (of_parts("scan-0", "lead"), "lead"),
    ],
)
async def test_a_process_is_ready_while_a_shard_group_and_what_serves_them_all_work(
    loops: tuple[StillLoop, ...], failing: str
) -> None:
    """One shard with a broken key must not hold up a rollout, and none that works must. Failing loops are named."""
    expected = (503, f"not ready: {failing}\n") if failing else (200, "ok\n")
    assert await ask("readyz", loops) == expected


async def test_of_two_queues_each_is_ready_for_itself() -> None:
    """A shard group that works excuses another one of its queue only."""
    works, fails = StillLoop("lead", group="1"), StillLoop("lead", works=False, group="2", queue="mails")
    assert await ask("readyz", (works, fails)) == (503, "not ready: mails: lead\n")
    hangs = StillLoop("sweep", stuck_seconds=STUCK_AFTER_SECONDS + 1, queue="mails")
    assert await ask("healthz", (works, hangs)) == (500, "stuck: mails: sweep\n")
