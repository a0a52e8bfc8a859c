"""2,000 tasks due at one instant, met from zero workers: what happened, and what simulations say of the same trace."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from delayq.scaling import replayed
from delayq_operator.base import names

from benchmarks.node.diary import recording
from benchmarks.simulation.report import percentile
from tests.cluster.harness.waiting import eventually
from tests.node.ledger import of
from tests.node.scaled import Scaled

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.scaling import Decision

    from benchmarks.node.diary import Diary
    from tests.node.world import NodeWorld

TASKS: Final = 2_000
HANDLER_SECONDS: Final = 0.5
SLOTS: Final = 200
"""Three or four workers of this size are enough, and two cores start them in seconds."""
LATENESS: Final = 2
NOTICE_SECONDS: Final = 45  # more than the lead time of a group that never started together
"""From scheduling to the waking of workers: status tells of it within 12 s."""


@dataclass(frozen=True)
class Ride:
    """One rush, from when it was scheduled to when no worker was left; times in Unix seconds."""

    lead_seconds: float
    """As it was learnt before."""
    handler_seconds: float
    scheduled_at: float
    due_at: float
    wake_at: float
    """When the first worker was expected, by `wakeTime` in the status."""
    asked: Decision
    late: list[float]
    """How late each task began, sorted."""
    handlers: float
    """Mean time that handlers took, by the ledger."""
    done_at: float
    end: float
    diary: Diary

    def late_percent(self, percent: float) -> float:
        return percentile(self.late, percent)

    @property
    def measured(self) -> Forecast:
        """In the terms of a simulation."""
        return Forecast(
            by="measured",
            asked=self.asked.at - self.due_at,
            late=(self.late_percent(50), self.late_percent(99), self.late[-1]),
            met=self.late_percent(99) <= LATENESS,
            most_workers=self.most_workers,
            pod_hours=self.pod_hours,
        )

    @property
    def pod_hours(self) -> float:
        return self.diary.pod_seconds(self.scheduled_at, self.end) / 3600

    @property
    def most_workers(self) -> int:
        return max(number for _, number in self.diary.numbers)

    def table(self) -> list[str]:
        """A line for each worker, in seconds from the due time."""
        lines = [f"{'worker':<32}{'asked':>8}{'Ready':>8}{'claims':>8}{'leaves':>8}{'gone':>8}"]
        for life in sorted(self.diary.lives.values(), key=lambda each: each.claimed_at or self.end):
            times = (self.asked.at, life.ready_at, life.claimed_at, life.leaving_at, life.gone_at)
            cells = "".join(f"{'-' if at is None else f'{at - self.due_at:+.2f}':>8}" for at in times)
            lines.append(f"{life.name:<32}{cells}")
        return lines


def begin(world: NodeWorld) -> Scaled:
    """A queue that has learnt how long its handlers take, and how long a worker takes to start, and is at zero."""
    orders = Scaled.begin(world, concurrency=SLOTS, objective={"latenessMilliseconds": LATENESS * 1000})
    orders.schedule_at(
        orders.world.now_ms,
        {f"first-{nth}": {"do": "sleep", "seconds": HANDLER_SECONDS} for nth in range(100)},
    )
    orders.until_reported("handlerMilliseconds")
    orders.until_none()
    orders.learn_lead()
    return orders


def decisions(world: NodeWorld) -> list[Decision]:
    """The decision behind each event about more workers, oldest first."""
    events = world.items("events", fieldSelector="involvedObject.kind=DelayQueue")
    found = [each for each in events if each["reason"] == "ScaledUp"]
    found.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
    return [replayed(each["metadata"]["annotations"][names.DECISION]) for each in found]


def ride(orders: Scaled, name: str, tasks: int = TASKS) -> Ride:
    """Schedule a rush, and follow it from no worker to none."""
    world, reported = orders.world, orders.reported
    before = len(decisions(world))
    acked = world.stats.get("acked", 0)
    ids = [f"{name}-{nth}" for nth in range(tasks)]
    with recording(world) as diary:
        scheduled_at = time.time()
        due_ms = orders.world.now_ms + int((reported["leadTimeSeconds"] + NOTICE_SECONDS) * 1000)
        orders.schedule_at(due_ms, {each: {"do": "sleep", "seconds": HANDLER_SECONDS} for each in ids})
        wake_at = datetime.fromisoformat(orders.until_reported("wakeTime")).timestamp()
        eventually(
            lambda: world.stats.get("acked", 0) >= acked + tasks,
            timeout_s=180,
            every_s=0.5,
            what=f"{tasks} tasks are handled",
        )
        done_at = time.time()
        orders.until_none()
    starts, ends = of("start", world.ledger), of("end", world.ledger)
    asked = eventually(lambda: decisions(world)[before:], what="an event of it")[0]
    return Ride(
        lead_seconds=reported["leadTimeSeconds"],
        handler_seconds=reported["handlerMilliseconds"] / 1000,
        scheduled_at=scheduled_at,
        due_at=due_ms / 1000,
        wake_at=wake_at,
        asked=asked,
        late=sorted(starts[each][0].at_ms / 1000 - due_ms / 1000 for each in ids),
        handlers=sum(ends[each][0].at_ms - starts[each][0].at_ms for each in ids) / 1000 / tasks,
        done_at=done_at,
        end=time.time(),
        diary=diary,
    )


@dataclass(frozen=True)
class Forecast:
    """What a simulation makes of the same tasks; times in seconds."""

    by: str
    asked: float
    """When a first worker was asked for, from the due time."""
    late: tuple[float, float, float]
    """p50, p99, the largest."""
    met: bool
    most_workers: int
    pod_hours: float

    @classmethod
    def of(cls, run: dict[str, Any], due: float) -> Forecast:
        """Read one of the runs of `python -m benchmarks.simulation --output=json`."""
        first = next(each["at_ms"] for each in run["changes"] if each["after"] > each["before"])
        p50, p99, most = (run["late_ms"][name] / 1000 for name in ("p50", "p99", "max"))
        return cls(
            by=run["by"],
            asked=first / 1000 - due,
            late=(p50, p99, most),
            met=run["objective_met"],
            most_workers=run["most_workers"],
            pod_hours=run["pod_hours"],
        )


def simulated(orders: Scaled, rush: Ride, directory: Path) -> list[Forecast]:
    """What a simulation says of the same tasks: with delayq's decisions, and with a reactive policy."""
    body = orders.world.queue()
    document, trace = directory / "queue.yaml", directory / "trace.csv"
    kept = {"apiVersion": body["apiVersion"], "kind": body["kind"], "spec": body["spec"]}
    document.write_text(json.dumps(kept | {"metadata": {"name": body["metadata"]["name"]}}))
    offset = rush.due_at - rush.scheduled_at
    trace.write_text(f"due,handler_ms,count\n+{offset:.3f},{rush.handlers * 1000:.0f},{len(rush.late)}\n")
    how = (f"--trace={trace}", f"--lead={rush.lead_seconds:g}s", "--compare=reactive", "--output=json")
    command = (sys.executable, "-m", "benchmarks.simulation", str(document), *how)
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [Forecast.of(run, offset) for run in json.loads(said)["runs"]]
