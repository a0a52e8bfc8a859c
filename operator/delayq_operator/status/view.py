"""The view of one DelayQueue at the end of a reconciliation, from which its status is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq_operator.cache.workload import Workload
from delayq_operator.scaling.scaling import Observed
from delayq_operator.scaling.suspension import Suspension, suspension
from delayq_operator.scrape.worker_reports import Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue, Problem
    from delayq.contract.files import Reference
    from delayq.scaling import Decision

    from delayq_operator.cache.resource import Resource
    from delayq_operator.scaling.scaling import Scale
    from delayq_operator.scrape.backlog import Backlog, SuspendCommand
    from delayq_operator.scrape.shards import Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasing:
    """Progress of the erasure of a deleted queue's tasks."""

    done: bool = False
    failed: bool = False
    message: str = ""
    erased_shards: int = 0
    shards: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state of one DelayQueue at the end of a reconciliation."""

    resource: Resource
    queue: DelayQueue | None = None
    """None when the spec does not fit the model."""
    problems: tuple[Problem, ...] = ()
    forbidden: tuple[Problem, ...] = ()
    """Violations of the operator's policy by a valid spec."""
    redis_not_empty: str = ""
    """Why a changed spec.redis is refused: the old Redis may hold tasks."""
    unserved: tuple[str, ...] = ()
    """Optional kinds that the spec asks for and the cluster does not serve, such as "PodMonitor"."""
    scanner: Workload = field(default_factory=Workload)
    worker: Workload = field(default_factory=Workload)
    api: Workload = field(default_factory=Workload)
    issuer_unknown: str = ""
    """Why the API's pods have no keys to verify tokens of ServiceAccounts with; empty if they have, or need none."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """Component → what is wrong with one of its pods."""
    stuck_workers: int = 0
    """Worker pods with something wrong."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Component → what a running pod of it that is not ready waits for."""
    long_parked: bool = False
    """Whether tasks have been parked for so long that a person must act."""
    podless_run: bool = False
    """Whether the last run of the reaper has no pod after POD_SECONDS."""
    reaper: dict[str, Any] = field(default_factory=dict)
    """Status of the CronJob."""
    scale: Scale | None = None
    observed: Observed = field(default_factory=Observed)
    backlog: Backlog | None = None
    """None without a fresh reading of the scanners."""
    command: SuspendCommand | None = None
    """The `delayq suspend` that was last known to be in effect."""
    workers: Seen = field(default_factory=Seen)
    """What workers report."""
    unread: str = ""
    """Why the scanners could not be read."""
    failures: tuple[str, ...] = ()
    """Sentences: which writes the API server rejected, and why."""
    taken: tuple[str, ...] = ()
    """Objects of other owners that have the name of a child, such as "Deployment orders-worker"."""
    foreign: tuple[str, ...] = ()
    """Additions of other clients to pod templates, such as "container proxy of Deployment orders-worker"."""
    sharing: tuple[str, ...] = ()
    """DelayQueues that use the same queue in the same Redis, such as "shop/orders2"."""
    rival: str = ""
    """Another installation of the operator that claims the DelayQueue."""
    leaving: tuple[str, ...] = ()
    """Children of an earlier DelayQueue of this name that are being deleted."""
    erasing: Erasing | None = None
    """Set while the DelayQueue is being deleted."""

    @property
    def loads(self) -> tuple[tuple[str, Workload], ...]:
        """The Deployments, by component."""
        served = self.queue is not None and self.queue.spec.api is not None
        return ("scanner", self.scanner), ("worker", self.worker), *([("api", self.api)] if served else [])

    @property
    def suspension(self) -> Suspension:
        """What suspends the queue; nothing if the spec does not fit the model."""
        return (
            Suspension("", drains=False) if self.queue is None else suspension(self.queue.spec, self.command)
        )

    @property
    def missing(self) -> tuple[Reference, ...]:
        """Keys of Secrets and ConfigMaps that any process waits for."""
        return tuple(sorted({*self.workers.missing, *(self.backlog.missing if self.backlog else ())}))

    @property
    def decision(self) -> Decision | None:
        """The operator's decision on the number of workers, if there is one."""
        return self.scale.decision if self.scale is not None else None

    @property
    def shards(self) -> Shards | None:
        """The scanners' reports on shards; None without a fresh reading."""
        return self.backlog.shards if self.backlog is not None else None
