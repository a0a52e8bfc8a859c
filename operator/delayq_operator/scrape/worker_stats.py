"""Statistics of the workers of one queue: ready, starting, handler time and lead time. Pure.

Workers run images that tenants choose: missing or invalid numbers of one are ignored. Not here: which of them to scrape
(workers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table
from delayq.scaling import HandlerTime, KindTimes, LeadTime
from delayq.scaling.learning import LONGEST_HANDLER_SECONDS, LONGEST_LEAD_SECONDS
from delayq.scaling.policy import LEAD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from delayq_operator.base.objects import Sample
    from delayq_operator.cache.pod import Pod

PATIENCE: Final = 3  # times the lead time, after which a worker no longer counts as starting
LEAST_PATIENCE_SECONDS: Final = 60.0
TOGETHER_SECONDS: Final = 3.0
"""Workers that were created within so long of each other start together: a decision later, or the API server's pace."""
MOST_BUSY: Final = 100_000
MOST: Final = 2**53  # beyond, a float does not count any more

NEEDED: Final = frozenset(
    {
        table.WORKER_BUSY_SLOTS.name,
        table.WORKER_FIRST_CLAIM.name,
        table.MISSING_REFERENCES.name,
        table.WORKER_GUARD_UP.name,
        table.WORKER_KIND_RUNS.name,
        table.WORKER_KIND_HANDLER_SECONDS.name,
        f"{table.WORKER_DUE_TO_CLAIMED.name}_bucket",
        f"{table.WORKER_HANDLER.name}_sum",
        f"{table.WORKER_HANDLER.name}_count",
    }
)
"""Names of the metrics that the operator reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How many workers there are."""

    ready: int = 0
    starting: int = 0
    starting_seconds: float = 0.0
    """The age of the youngest of them."""


class WorkerStats:
    """Statistics of the workers of one queue."""

    def __init__(self, status: Mapping[str, object], since: float = 0.0) -> None:
        """Start from `status.scaling` of the previous operator; `since`: pods older than this existed before."""
        self._since = since
        self.handler = HandlerTime(
            _number(status.get("handlerMilliseconds"), per=1000, most=LONGEST_HANDLER_SECONDS)
        )
        self.kinds = KindTimes()
        self.lead = LeadTime(_number(status.get("leadTimeSeconds"), per=1, most=LONGEST_LEAD_SECONDS))
        self._claimed: set[str] = set()
        self._came: set[str] = set()
        self._blocked: set[str] = set()

    @property
    def patience_seconds(self) -> float:
        """How long a worker counts as starting."""
        return max(LEAST_PATIENCE_SECONDS, PATIENCE * (self.lead.seconds or LEAD_SECONDS))

    def starts(self, pod: Pod, now: float) -> bool:
        """Whether a worker is starting, within its patience."""
        coming = pod.name not in self._claimed and not pod.ready and not pod.trouble
        return coming and now - pod.created_at < self.patience_seconds

    def take(self, pod: Pod, samples: Sequence[Sample], now: float, pods: Iterable[Pod] = ()) -> None:
        """Add the samples of a worker; `pods` are all workers."""
        values = valid_values(samples)
        total, count = (values.get(f"{table.WORKER_HANDLER.name}_{which}") for which in ("sum", "count"))
        if total is not None and count is not None:
            self.handler.take(pod.name, total, count, older=pod.created_at < self._since)
            self.handler.watch(pod.name, busy=int(values.get(table.WORKER_BUSY_SLOTS.name, 0)), now=now)
        seconds = _by_kind(table.WORKER_KIND_HANDLER_SECONDS, samples)
        for kind, runs in _by_kind(table.WORKER_KIND_RUNS, samples).items():
            self.kinds.take(kind, pod.name, seconds.get(kind, 0.0), runs, older=pod.created_at < self._since)
        if table.MISSING_REFERENCES.name in values:
            self._blocked.add(pod.name)
        first_claim = values.get(table.WORKER_FIRST_CLAIM.name)
        if first_claim is None:
            return
        self._claimed.add(pod.name)
        # A restart, or a wait for Redis, for a Secret or for permission to claim, is not lead time.
        if not pod.restarts and pod.name not in self._blocked:
            self.lead.take(pod.name, first_claim - pod.created_at, _together(pod, pods))

    def block(self, pods: Iterable[Pod], now: float) -> None:
        """Take note that no worker can claim: the delay of starting workers is not lead time."""
        usual = self.lead.seconds or LEAD_SECONDS
        created = {pod.name: pod.created_at for pod in pods}
        late = {name for name, at in created.items() if now - at > usual}
        self._blocked = (self._blocked | late - self._claimed) & created.keys()

    def fleet(self, pods: Sequence[Pod], now: float) -> Fleet:
        """Count the workers, and drop those that are gone."""
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
        """Whether it claims; its first claim precedes readiness in Kubernetes."""
        return pod.ready or (pod.name in self._claimed and pod.name not in self._came)

    def _forget(self, but: set[str]) -> None:
        self.handler.forget(but)
        self.kinds.forget(but)
        self.lead.forget(but)
        for known in (self._claimed, self._came, self._blocked):
            known.intersection_update(but)


def _together(pod: Pod, pods: Iterable[Pod]) -> int:
    """Count the workers that were created along with this one."""
    others = (each.created_at for each in pods if each.name != pod.name)
    return 1 + sum(1 for at in others if abs(at - pod.created_at) <= TOGETHER_SECONDS)


def reachable(pod: Pod) -> bool:
    """Whether its address still belongs to this pod: the address of an ended one may be reused."""
    return bool(pod.address) and not pod.leaving | pod.failed


def busy(samples: Iterable[Sample]) -> int | None:
    """Return how many tasks a worker reports as running; None if it does not report it."""
    found = valid_values(samples).get(table.WORKER_BUSY_SLOTS.name)
    return None if found is None else int(min(found, MOST_BUSY))


def valid_values(samples: Iterable[Sample]) -> dict[str, float]:
    """Return the valid values: no NaN, not negative, not above MOST."""
    return {name: float(value) for name, _, value in samples if 0 <= value <= MOST}


def _by_kind(metric: table.Metric, samples: Iterable[Sample]) -> dict[str, float]:
    return {has["kind"]: value for name, has, value in samples if name == metric.name and "kind" in has}


def _number(value: object, *, per: int, most: float) -> float | None:
    """Read a number from status; any client may have written it."""
    return value / per if isinstance(value, int) and 0 < value <= most * per else None
