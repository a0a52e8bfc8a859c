"""The workers and the queue in virtual time: events on exact tasks. Not here: how many workers there should be.

Tasks are claimed in the order of their due times by the slot that has been free the longest. A worker claims nothing
before it has started, which takes the lead time. Once it is stopping, it claims nothing more and finishes its tasks.
Messages take no time: what a simulation tells of lateness leaves the few milliseconds of Redis and the network out.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final

from benchmarks.simulation.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.contract import Limits

    from benchmarks.simulation.tasks import Tasks

NEVER: Final = -1.0


class Worker:
    """One pod."""

    __slots__ = ("busy", "claims_at", "created", "gone", "leaving", "number", "runs", "seconds", "tasks")

    def __init__(self, number: int, created: float, claims_at: float) -> None:
        self.number, self.created, self.claims_at = number, created, claims_at
        self.busy, self.tasks, self.seconds = 0, 0, 0.0
        self.runs = Counter[float]()
        """Tasks by handler time: tasks of the same are of one kind."""
        self.leaving, self.gone = False, inf

    @property
    def name(self) -> str:
        """A name of its own, as a pod has."""
        return f"worker-{self.number}"


class Plant:
    """What a decision acts on."""

    def __init__(
        self,
        tasks: Tasks,
        *,
        slots: int,
        lead_seconds: float,
        replicas: int = 0,
        limits: Limits | None = None,
    ) -> None:
        """`replicas` workers are there from the start; `limits` are those on what may begin."""
        self.tasks, self.slots, self.lead_seconds = tasks, slots, lead_seconds
        self.now = 0.0
        self._gate = Gate(limits)
        self.claimed, self.finished = 0, 0
        self.leaving = 0
        """Workers that stop after their tasks."""
        self.began = array("d", [NEVER]) * len(tasks)
        self.began_by = array("l", [-1]) * len(tasks)
        self.workers: list[Worker] = []
        self.staff: list[Worker] = []
        """Workers that run and are not stopping, the oldest first."""
        self._to_start: deque[Worker] = deque()
        self._free: deque[Worker] = deque()
        self._running: list[tuple[float, int, int]] = []
        self._hire(replicas, 0.0)
        self.advance(0.0)

    @property
    def in_flight(self) -> int:
        """Running tasks, on all workers."""
        return len(self._running)

    @property
    def starting(self) -> list[Worker]:
        """Workers on their way."""
        return [worker for worker in self._to_start if not worker.leaving]

    def pod_seconds(self, until: float) -> float:
        """Time that workers were there, starting and leaving included."""
        return sum(min(worker.gone, until) - worker.created for worker in self.workers)

    def scale(self, replicas: int) -> None:
        """Add workers, or let some go: those not started yet, then those with the least to do, the youngest first."""
        if replicas > len(self.staff):
            self._hire(replicas - len(self.staff), self.lead_seconds)
        elif replicas < len(self.staff):
            ranked = sorted(self.staff, key=self._worth)
            self._dismiss(ranked[: len(self.staff) - replicas])

    def advance(self, until: float) -> None:
        """Let time pass."""
        while self._to_start and self._to_start[0].claims_at <= until:
            worker = self._to_start.popleft()
            if worker.leaving:
                continue
            self._work(worker.claims_at)
            self.now = worker.claims_at
            self._free.extend([worker] * self.slots)
        self._work(until)
        self.now = until

    def _hire(self, number: int, lead_seconds: float) -> None:
        new = [
            Worker(len(self.workers) + place, self.now, self.now + lead_seconds) for place in range(number)
        ]
        self.workers += new
        self.staff += new
        self._to_start += new

    def _dismiss(self, those: Iterable[Worker]) -> None:
        for worker in those:
            worker.leaving = True
            if worker.busy:
                self.leaving += 1
            else:
                worker.gone = self.now
        self.staff = [worker for worker in self.staff if not worker.leaving]

    def _worth(self, worker: Worker) -> tuple[bool, int, int]:
        return worker.claims_at <= self.now, worker.busy, -worker.number

    def _work(self, until: float) -> None:
        due, free, running, total = self.tasks.due, self._free, self._running, len(self.tasks)
        while True:
            end = running[0][0] if running else inf
            start = inf
            if free and self.claimed < total:
                start = self._gate.opens(max(due[self.claimed], self.now), len(running))
            if min(start, end) > until:
                return
            if end <= start:
                self._finish()
            else:
                self._claim(start)

    def _claim(self, at: float) -> None:
        worker = self._free.popleft()
        if worker.leaving:
            return
        task = self.claimed
        self._gate.begin(at)
        self.began[task], self.began_by[task] = at, worker.number
        worker.busy += 1
        self.claimed += 1
        heappush(self._running, (at + self.tasks.handler_seconds[task], task, worker.number))

    def _finish(self) -> None:
        self.now, task, number = heappop(self._running)
        worker = self.workers[number]
        worker.busy -= 1
        worker.tasks += 1
        worker.seconds += self.tasks.handler_seconds[task]
        worker.runs[self.tasks.handler_seconds[task]] += 1
        self.finished += 1
        if not worker.leaving:
            self._free.append(worker)
        elif not worker.busy:
            worker.gone = self.now
            self.leaving -= 1
