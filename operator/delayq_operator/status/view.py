"""One DelayQueue as a reconciliation found and left it: everything that status is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.cache.workload import Workload
from delayq_operator.scaling.scaling import Learnt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue, Problem
    from delayq.scaling import Decision

    from delayq_operator.cache.resource import Resource
    from delayq_operator.scaling.scaling import Scale
    from delayq_operator.scrape.backlog import Backlog
    from delayq_operator.scrape.shards import Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasing:
    """How far the erasing of a deleted queue's tasks has come."""

    done: bool = False
    failed: bool = False
    message: str = ""
    erased_shards: int = 0
    shards: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarding:
    """How many workers told of late that they can use the guard, and how many that they cannot."""

    able: int = 0
    unable: int = 0

    @property
    def verdict(self) -> tuple[bool, bool]:
        """Whether some can, and whether some cannot."""
        return self.able > 0, self.unable > 0

    @property
    def down(self) -> bool:
        """Whether none can."""
        return self.verdict == (False, True)


WINDOW_SECONDS: Final = 300.0
"""For which the objective is measured, as by the alert DelayQueueLate: long enough for a percentile, and about now."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Tasks that began in some time."""

    tasks: float = 0.0
    late: float = 0.0
    """Of them, those that began later than the objective allows."""

    def __add__(self, other: Begun) -> Begun:
        """Sum up."""
        return Begun(self.tasks + other.tasks, self.late + other.late)

    def missed(self, percentile: float) -> bool:
        """Whether more of them were late than the objective's percentile allows."""
        return self.late > round(self.tasks * (100 - percentile) / 100, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known of one DelayQueue at the end of a reconciliation."""

    resource: Resource
    queue: DelayQueue | None = None
    """None when the spec does not fit the model."""
    problems: tuple[Problem, ...] = ()
    forbidden: tuple[Problem, ...] = ()
    """What the operator's policy does not allow, of a spec that is valid."""
    stranding: str = ""
    """Why another Redis that spec.redis names is not taken: it would leave tasks behind."""
    missing: tuple[str, ...] = ()
    """What the spec refers to and is not there, such as "Secret shop-db", or a key of it."""
    unserved: tuple[str, ...] = ()
    """Optional kinds that the spec asks for in vain, such as "PodMonitor"."""
    scanner: Workload = field(default_factory=Workload)
    worker: Workload = field(default_factory=Workload)
    troubles: Mapping[str, str] = field(default_factory=dict)
    """Component → what is wrong with one of its pods."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Component → what one of its pods waits for that runs and is not ready."""
    runless: bool = False
    """Whether the last run of the reaper has got no pod, though it had the time."""
    reaper: dict[str, Any] = field(default_factory=dict)
    """Status of the CronJob."""
    scale: Scale | None = None
    learnt: Learnt = field(default_factory=Learnt)
    backlog: Backlog | None = None
    """None when no scanner was read of late."""
    guarding: Guarding = field(default_factory=Guarding)
    begun: Begun = Begun()
    """What workers told of the tasks that began in the last minutes (lateness.py)."""
    unread: str = ""
    """Why the scanners could not be read."""
    failures: tuple[str, ...] = ()
    """What could not be applied, in sentences."""
    taken: tuple[str, ...] = ()
    """Names of our children that objects of others hold, such as "Deployment orders-worker"."""
    foreign: tuple[str, ...] = ()
    """Containers that others put into our pod templates."""
    sharing: tuple[str, ...] = ()
    """DelayQueues whose tasks are the same ones, such as "shop/orders2"."""
    rival: str = ""
    """Another installation of the operator that claims the DelayQueue; it leaves it to this one."""
    leaving: tuple[str, ...] = ()
    """Children of an earlier DelayQueue of this name, on their way out."""
    erasing: Erasing | None = None
    """Set while the DelayQueue is being deleted."""

    @property
    def loads(self) -> tuple[tuple[str, Workload], ...]:
        """The Deployments, by component."""
        return ("scanner", self.scanner), ("worker", self.worker)

    @property
    def decision(self) -> Decision | None:
        """The operator's on the number of workers, when it made one."""
        return self.scale.decision if self.scale is not None else None

    @property
    def shards(self) -> Shards | None:
        """What scanners say of the shards; None when no scanner was read of late."""
        return self.backlog.shards if self.backlog is not None else None
