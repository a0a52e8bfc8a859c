"""The workers of one queue: who claims, who is on the way, what they are busy with, what they teach. Pure.

They run an image that a tenant chose, so a worker that tells nothing, or nonsense, is one less to learn from and
nothing else. Each that claims is asked again now and then; one on its way, in every period.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table
from delayq.scaling import HandlerTime, LeadTime
from delayq.scaling.policy import LEAD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from delayq_operator.objects import Sample
    from delayq_operator.pod import Pod

AGAIN_SECONDS: Final = 6.0
MOST_AT_ONCE: Final = 64
PATIENCE: Final = 3  # times the usual start-up, until a worker counts as one that will not come
LEAST_PATIENCE_SECONDS: Final = 60.0
MOST_BUSY: Final = 100_000

NEEDED: Final = frozenset(
    {
        table.WORKER_BUSY_SLOTS.name,
        table.WORKER_FIRST_CLAIM.name,
        f"{table.WORKER_HANDLER.name}_sum",
        f"{table.WORKER_HANDLER.name}_count",
    }
)
"""Names of the metrics that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How many workers there are."""

    ready: int = 0
    starting: int = 0
    starting_seconds: float = 0.0
    """The age of the youngest of them."""


class Crew:
    """What is known of the workers of one queue."""

    def __init__(self, status: Mapping[str, object]) -> None:
        """Take up what an earlier operator has learnt, from `status.scaling`."""
        self.handler = HandlerTime(_number(status.get("handlerMilliseconds"), 1000))
        self.lead = LeadTime(_number(status.get("leadSeconds"), 1))
        self._asked_at: dict[str, float] = {}
        self._claimed: set[str] = set()
        self._came: set[str] = set()
        self._held_up: set[str] = set()

    @property
    def patience_seconds(self) -> float:
        """How long a worker may take until it is one that will not come."""
        return max(LEAST_PATIENCE_SECONDS, PATIENCE * (self.lead.seconds or LEAD_SECONDS))

    def to_ask(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Whom to ask now: those that have not claimed yet, then those asked longest ago."""
        due = [
            pod
            for pod in pods
            if pod.address and (self._new(pod) or now - self._asked_at.get(pod.name, 0.0) >= AGAIN_SECONDS)
        ]
        due.sort(key=lambda pod: (not self._new(pod), self._asked_at.get(pod.name, 0.0)))
        for pod in due[:MOST_AT_ONCE]:
            self._asked_at[pod.name] = now
        return due[:MOST_AT_ONCE]

    def _new(self, pod: Pod) -> bool:
        return pod.name not in self._claimed and not pod.trouble

    def take(self, pod: Pod, samples: Iterable[Sample]) -> None:
        """Take note of what a worker says."""
        said = _said(samples)
        total, count = (said.get(f"{table.WORKER_HANDLER.name}_{which}") for which in ("sum", "count"))
        if total is not None and count is not None:
            self.handler.take(pod.name, total, count)
        first_claim = said.get(table.WORKER_FIRST_CLAIM.name)
        if first_claim is None:
            return
        self._claimed.add(pod.name)
        # One that started anew, or waited for Redis or for leave to claim, has not taken as long to start.
        if not pod.restarts and pod.name not in self._held_up:
            self.lead.take(pod.name, first_claim - pod.created_at)

    def hold_up(self, pods: Iterable[Pod], now: float) -> None:
        """Take note that nobody can claim: who would have by now takes longer for no fault of its own."""
        usual = self.lead.seconds or LEAD_SECONDS
        late = {pod.name for pod in pods if now - pod.created_at > usual}
        self._held_up |= late - self._claimed

    def fleet(self, pods: Sequence[Pod], now: float) -> Fleet:
        """Count the workers, and forget those that are gone."""
        self._forget({pod.name for pod in pods})
        here = [pod for pod in pods if not pod.leaving | pod.failed]
        ready = [pod for pod in here if self._claims(pod)]
        self._came |= {pod.name for pod in here if pod.ready}
        ages = [
            now - pod.created_at
            for pod in here
            if pod.name not in self._came | self._claimed and not pod.trouble
        ]
        coming = [max(0.0, age) for age in ages if age < self.patience_seconds]
        return Fleet(ready=len(ready), starting=len(coming), starting_seconds=min(coming, default=0.0))

    def _claims(self, pod: Pod) -> bool:
        """Whether it claims; its first claim comes before Kubernetes calls it ready."""
        return pod.ready or (pod.name in self._claimed and pod.name not in self._came)

    def _forget(self, but: set[str]) -> None:
        self.handler.forget(but)
        self.lead.forget(but)
        for known in (self._claimed, self._came, self._held_up):
            known.intersection_update(but)
        for name in self._asked_at.keys() - but:
            del self._asked_at[name]


def busy(samples: Iterable[Sample]) -> int | None:
    """Return how many tasks a worker says it runs; None when it does not say."""
    found = _said(samples).get(table.WORKER_BUSY_SLOTS.name)
    return None if found is None else int(min(found, MOST_BUSY))


def _said(samples: Iterable[Sample]) -> dict[str, float]:
    return {name: value for name, _, value in samples if 0 <= value < inf}


def _number(value: object, per: float) -> float | None:
    """Read what a status says; anybody may have written it."""
    return value / per if isinstance(value, int) and value > 0 else None
