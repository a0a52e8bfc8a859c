"""`make bench-scaling`: delayq on random traces, beside a fleet that is always at its maximum.

How often does it meet the objective where that fleet does, and at what share of its worker-seconds? A trace has a
trickle of tasks, and bursts that are known at least 70 s before they fall due. The objective is met if 99 % of the
tasks begin within it.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.scaling import Policy
from delayq.scaling.policy import LEAD_SECONDS

from benchmarks import simulation
from benchmarks.simulation.pilot import Step
from benchmarks.simulation.report import lateness, percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.simulation.outlook import Outlook

HORIZON_SECONDS: Final = 300.0
QUIET_SECONDS: Final = 60.0
"""Before the first task: workers can start in time."""
PERCENT: Final = 99.0
NOWHERE: Final = 946_684_800.0
"""2000-01-01T00:00:00Z: when each simulation begins."""
MIXED: Final = 10.0
"""Ratio of the longest handler time to the shortest from which handler times count as mixed."""
LISTED: Final = 5
"""Misses that are printed of each cause."""


class Trial(NamedTuple):
    """A trace, and the queue that has to run it."""

    number: int
    tasks: simulation.Tasks
    policy: Policy
    lead_seconds: float

    def __str__(self) -> str:
        policy, handlers = self.policy, ", ".join(f"{each:g}" for each in self.handlers)
        return (
            f"{len(self.tasks):,} tasks of {handlers} s, objective {policy.lateness_seconds:g} s, lead time "
            f"{self.lead_seconds:g} s, at most {policy.max_replicas} workers of {policy.slots} slots"
        )

    @property
    def handlers(self) -> list[float]:
        """Return the handler times, the shortest first."""
        return sorted(set(self.tasks.handler_seconds))

    def cause(self, *, fresh: bool) -> str:
        """Return what distinguishes a trace that was missed; `fresh`: by a queue that has learnt nothing."""
        if fresh and self.lead_seconds > LEAD_SECONDS:
            return f"long lead time: longer than the {LEAD_SECONDS:g} s that a new queue assumes"
        shortest, *_, longest = [self.handlers[0], *self.handlers]
        if longest >= MIXED * shortest:
            return f"mixed handler times: the longest is at least {MIXED:g} times the shortest"
        if longest >= self.policy.lateness_seconds:
            return "long handlers: a task takes at least as long as the objective allows for a start"
        return "other"


class Outcome(NamedTuple):
    """One policy on one trace."""

    trial: Trial
    excess: float
    """The 99th percentile of the lateness, over the objective: met up to 1."""
    worker_seconds: float


class Always:
    """A fleet that is always at its maximum."""

    name, period_seconds, patience_seconds = "maximum", 2.0, 0.0

    def __init__(self, replicas: int) -> None:
        self._step = Step(replicas)

    def look(self, plant: simulation.Plant, outlook: Outlook) -> Step:  # noqa: ARG002 -- it does not look
        return self._step


def trials(count: int, seed: int) -> Iterator[Trial]:
    """Draw trials; the same seed draws the same ones."""
    random = Random(seed)
    for number in range(count):
        tasks = simulation.Tasks.of(_trace(random))
        lead, slots = random.choice([3.0, 8.0, 15.0, 40.0]), random.choice([1, 4, 32])
        most, late = random.choice([2, 6, 20]), random.choice([0.2, 1.0, 5.0])
        policy = Policy(slots=slots, lateness_seconds=late, max_replicas=most, cooldown_seconds=60)
        yield Trial(number, tasks, policy, lead)


def _trace(random: Random) -> Iterator[simulation.Arrival]:
    rate, usual = random.choice([0, 0, 0.5, 2, 5, 20]), random.choice([0.01, 0.1, 0.5, 1, 3])
    at = QUIET_SECONDS
    while rate and at < HORIZON_SECONDS:
        at += random.expovariate(rate)
        yield simulation.Arrival(at, usual)
    for _ in range(random.randint(1, 4)):
        yield from _burst(random, usual)


def _burst(random: Random, usual: float) -> Iterator[simulation.Arrival]:
    at = random.uniform(70, HORIZON_SECONDS)
    seconds = usual if random.random() < 0.6 else random.choice([0.01, 0.1, 0.5, 1, 3, 8])  # noqa: PLR2004 -- a share
    tasks, spread = random.choice([20, 100, 500, 2000]), random.choice([0, 0, 1, 5, 20])
    notice = random.choice([1e9, 1e9, 120, 70])
    scheduled = max(0.0, at - notice)
    if not spread:
        yield simulation.Arrival(at, seconds, scheduled, tasks)
    for _ in range(tasks if spread else 0):
        yield simulation.Arrival(at + random.uniform(0, spread), seconds, scheduled)


def outcome(trial: Trial, pilot: simulation.Pilot) -> Outcome:
    """Simulate one policy, from zero workers."""
    policy = trial.policy
    plant = simulation.Plant(
        trial.tasks, slots=policy.slots, lead_seconds=trial.lead_seconds, limits=policy.limits
    )
    run = simulation.simulate(trial.tasks, pilot, plant)
    late = percentile(lateness(run), PERCENT) / policy.lateness_seconds
    return Outcome(trial, late, plant.pod_seconds(run.end))


def delayq(trial: Trial, known: simulation.Known) -> Outcome:
    """Simulate production's decisions."""
    pilot = simulation.Production(trial.policy, replicas=0, start=NOWHERE, known=known)
    return outcome(trial, pilot)


def learnt(trial: Trial) -> simulation.Known:
    """Return what a queue has learnt that has run such tasks before."""
    return simulation.Known(trial.tasks.mean_handler_seconds, trial.lead_seconds, tuple(trial.handlers))


class Result(NamedTuple):
    """One trace: the fleet at its maximum, and delayq with and without what it learns."""

    maximum: Outcome
    learnt: Outcome
    fresh: Outcome


def results(count: int, seed: int) -> Iterator[Result]:
    """Simulate the traces on which the fleet at its maximum meets the objective."""
    for trial in trials(count, seed):
        maximum = outcome(trial, Always(trial.policy.max_replicas))
        if maximum.excess <= 1:
            yield Result(maximum, delayq(trial, learnt(trial)), delayq(trial, simulation.Known()))
        _progress(trial.number + 1, count)


def _progress(done: int, count: int) -> None:
    end = "\n" if done == count else ""
    print(f"\rtrace {done} of {count}", end=end, file=sys.stderr, flush=True)


def lines(found: list[Result], count: int, seed: int) -> Iterator[str]:
    """Yield the table and the misses."""
    yield f"seed {seed}: a fleet at its maximum meets the objective on {len(found)} of {count} traces"
    yield f"{'delayq':<28}{'met':>12}{'worker-seconds ÷ maximum, median':>36}"
    named = {"has learnt its tasks": "learnt", "has learnt nothing": "fresh"}
    for name, field in named.items():
        these = [(getattr(each, field), each.maximum) for each in found]
        met = sum(each.excess <= 1 for each, _ in these)
        cost = median(each.worker_seconds / maximum.worker_seconds for each, maximum in these)
        yield f"{name:<28}{met:>4} {met / len(found):>7.1%}{cost:>36.2f}"
    yield from _misses("has learnt its tasks", [each.learnt for each in found], fresh=False)
    yield from _misses("has learnt nothing", [each.fresh for each in found], fresh=True)


def _misses(name: str, found: Iterable[Outcome], *, fresh: bool) -> Iterator[str]:
    causes = defaultdict[str, list[Outcome]](list)
    for each in found:
        if each.excess > 1:
            causes[each.trial.cause(fresh=fresh)].append(each)
    for cause, missed in sorted(causes.items(), key=lambda item: -len(item[1])):
        yield f"\n{name}, {len(missed)} missed, {cause}"
        for each in sorted(missed, key=lambda each: -each.excess)[:LISTED]:
            yield f"  #{each.trial.number:<4} p99 {each.excess:.2f} × the objective: {each.trial}"


def main() -> None:
    """Simulate, print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulation.random_traces", description=__doc__
    )
    parser.add_argument("--count", type=int, default=200, help="traces to draw (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the traces (%(default)s)")
    options = parser.parse_args()
    found = list(results(options.count, options.seed))
    if not found:
        parser.error(f"--count: expected enough traces for one that a fleet can meet, got {options.count}")
    print("\n".join(lines(found, options.count, options.seed)))


if __name__ == "__main__":
    main()
