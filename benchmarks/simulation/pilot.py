"""Scaling policies of a simulation, among them delayq's own decide(). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from delayq.contract.metrics import KINDS_SAMPLED
from delayq.scaling import HandlerTime, KindTimes, LeadTime, Sample, begun, decide, horizons
from delayq.scaling.learning import SIZES

if TYPE_CHECKING:
    from delayq.scaling import Decision, Policy

    from benchmarks.simulation.outlook import Outlook
    from benchmarks.simulation.plant import Plant


class Known(NamedTuple):
    """What a queue has taught before the simulation begins; None: nothing yet."""

    handler_seconds: float | None = None
    lead_seconds: float | None = None
    """For any number of starts at once."""
    kinds: tuple[float, ...] = ()
    """Handler times of the kinds of task; empty: one mean for all tasks, also later."""


class Step(NamedTuple):
    """How many workers to have, and the decision if there was one."""

    replicas: int
    decision: Decision | None = None


class Pilot(Protocol):
    """Looks again and again, and says how many workers there should be."""

    @property
    def name(self) -> str:
        """The description for users."""

    @property
    def period_seconds(self) -> float:
        """Time between two looks."""

    @property
    def patience_seconds(self) -> float:
        """How long after the last task the last worker may still stay."""

    def look(self, plant: Plant, outlook: Outlook) -> Step:
        """Look now."""


class Production:
    """The operator: samples as it would scrape them, learns what it would learn, decides as it does."""

    name = "delayq"

    def __init__(self, policy: Policy, *, replicas: int, start: float, known: Known = Known()) -> None:  # noqa: B008 -- immutable
        """`start` in Unix seconds: decisions and their sentences speak of real time."""
        self.policy, self._start = policy, start
        self._memory = begun(replicas, start)
        self._handler = HandlerTime(known.handler_seconds)
        self._lead = LeadTime(known.lead_seconds, sizes=SIZES)
        self._by_kind, self._kinds = bool(known.kinds), KindTimes()
        for seconds in known.kinds:
            self._kinds.take(str(seconds), "before", seconds, 1)

    @property
    def period_seconds(self) -> float:
        """Return the time between two decisions."""
        return self.policy.period_seconds

    @property
    def patience_seconds(self) -> float:
        """Return the cool-down, what behavior adds to it, and for how long unforeseen tasks are expected again."""
        down = self.policy.behavior.scale_down
        pace = max((each.period_seconds for each in down.policies), default=0)
        slow = down.stabilization_window_seconds + 10 * pace
        return self.policy.cooldown_seconds + slow + 2 * self._window

    @property
    def _window(self) -> float:
        """Return how far ahead to ask: as many workers as are allowed may have to start together."""
        return self.policy.window(self._lead.of(self.policy.max_replicas))

    def look(self, plant: Plant, outlook: Outlook) -> Step:
        """Take a sample, decide."""
        decision = decide(self.sample(plant, outlook), self.policy, self._memory, self._start + plant.now)
        self._memory = decision.memory
        return Step(decision.replicas, decision)

    def sample(self, plant: Plant, outlook: Outlook) -> Sample:
        """Return what the operator would see."""
        self._learn(plant)
        now, starting = plant.now, plant.starting
        overdue = outlook.fallen_due(now) - plant.claimed
        return Sample(
            overdue=overdue,
            overdue_seconds=now - plant.tasks.due[plant.claimed] if overdue else 0.0,
            in_flight=plant.in_flight,
            due_within=outlook.within(now, horizons(self._window)),
            next_due_seconds=outlook.next_due_seconds(now),
            fallen_due=outlook.fallen_due(now),
            ready=len(plant.staff) - len(starting),
            starting=len(starting),
            starting_seconds=now - starting[-1].created if starting else 0.0,
            handler_seconds=self._handler.seconds,
            kinds=self._mix(plant),
            lead_seconds=self._lead.seconds,
            leads=self._lead.by_starts,
            soonest_seconds=self._lead.soonest_seconds,
        )

    def _mix(self, plant: Plant) -> tuple[tuple[float, float], ...]:
        """Sample the tasks due by the end of the window as due_kinds.lua does, also those not scheduled yet."""
        means, due = self._kinds.seconds, bisect_right(plant.tasks.due, plant.now + self._window)
        count = min(KINDS_SAMPLED, due - plant.claimed) if means else 0
        ranks = (int((each + 0.5) * (due - plant.claimed) / count) for each in range(count))
        found = Counter(plant.tasks.handler_seconds[plant.claimed + rank] for rank in ranks)
        return tuple((tasks / count, means.get(str(kind), kind)) for kind, tasks in found.items())

    def _learn(self, plant: Plant) -> None:
        """Read the counters of the workers that claim; one that is gone cannot be asked any more."""
        self._handler.forget({worker.name for worker in plant.staff})
        together = Counter(worker.created for worker in plant.staff)
        for worker in plant.staff:
            self._handler.take(worker.name, worker.seconds, worker.tasks)
            for kind, runs in worker.runs.items() if self._by_kind else ():
                self._kinds.take(str(kind), worker.name, kind * runs, runs)
            self._handler.watch(worker.name, busy=worker.busy, now=plant.now)
            if worker.claims_at <= plant.now and worker.claims_at > worker.created:
                self._lead.take(worker.name, worker.claims_at - worker.created, together[worker.created])
