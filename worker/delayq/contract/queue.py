"""The whole document: apiVersion, kind, metadata and spec of a DelayQueue."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from delayq.contract.api import Api
from delayq.contract.autoscaling import Autoscaling
from delayq.contract.check import Recovery
from delayq.contract.delivery import Delivery
from delayq.contract.durability import DurabilitySpec
from delayq.contract.fields import choice, constant, flag, section, text, whole
from delayq.contract.guard import Guard
from delayq.contract.handler import Handler
from delayq.contract.limits import Limits, Objective, Retention
from delayq.contract.processes import Reaper, Scanner, Worker
from delayq.contract.record import Rule, Shape, without
from delayq.contract.store import Redis
from delayq.contract.surroundings import Monitoring, NetworkPolicy, PodDisruptionBudget, Schedules
from delayq.contract.words import OBJECT_NAME, QUEUE_NAME, UID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract.http_service import HttpService

GROUP: Final = "delayq.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "DelayQueue"
MOST_SHARDS: Final = 256
_MOST_GENERATIONS: Final = 1 << 53

SuspendPolicy = Literal["Hold", "Drain"]
DeletionPolicy = Literal["Retain", "Delete"]


def _ledger_to_ask(recovery: Recovery, guard: Guard | None) -> bool:
    # Without `select`, the check cannot determine whether `update` would find a row.
    asked = recovery.check is not None and recovery.check.guard is not None
    if not asked or guard is None or guard.sql is None:
        return not asked
    optimistic = guard.sql_optimistic
    return optimistic is None or optimistic.update is None or optimistic.select is not None


def _no_code_beside_the_token(schedules: Schedules | None, recovery: Recovery) -> bool:
    # Scanners of a queue with schedules have a token, with which they read and write DelaySchedules.
    return schedules is None or recovery.check is None or recovery.check.python is None


def _kinds_not_run(handler: Handler, guard: Guard | None) -> list[str]:
    # Tasks of other kinds wait for a worker that has them; the kinds of an App are known only where it can be imported.
    if guard is None or not handler.python or handler.python.app:
        return []
    return [kind for kind in guard.kinds or () if kind not in (handler.kinds or ())]


def _some_in_each_shard(shards: int, limits: Limits) -> bool:
    # A shard with a quota of 0 would never start a task; one task of each shard at once would be a burst.
    burst = limits.burst or limits.rate_per_second
    return all(limit is None or limit >= shards for limit in (limits.max_in_flight, burst))


def _room_for_the_largest(shards: int, limits: Limits) -> bool:
    # With a smaller quota, a shard would reject the largest task even if the queue is empty. 1024: the id, and the
    # part of an envelope besides payload and headers.
    largest = limits.max_payload_bytes + limits.max_header_bytes + 1024
    return limits.max_bytes is None or limits.max_bytes >= shards * largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The desired queue; only redis and handler are required."""

    SHAPE: ClassVar[Shape] = Shape(
        renamed=(
            (
                "stopPolicy",
                "write suspend: true instead of Hold, and also suspendPolicy: Drain instead of HoldAndDrain",
            ),
        ),
        rules=(
            Rule(
                "recovery.check.guard needs guard.sqlUnique, guard.sqlPessimistic or guard.sqlOptimistic, "
                "the last with select where it has update",
                ("recovery", "guard"),
                _ledger_to_ask,
                "!has(self.recovery.check) || !has(self.recovery.check.guard) || (has(self.guard) "
                "&& (has(self.guard.sqlUnique) || has(self.guard.sqlPessimistic) || (has(self.guard.sqlOptimistic) "
                "&& (!has(self.guard.sqlOptimistic.update) || has(self.guard.sqlOptimistic.select)))))",
            ),
            Rule(
                "schedules and recovery.check.python exclude each other, for no code of users runs in scanners that "
                "may change DelaySchedules: use recovery.check.http or recovery.check.guard",
                ("schedules", "recovery"),
                _no_code_beside_the_token,
                "!has(self.schedules) || !has(self.recovery.check) || !has(self.recovery.check.python)",
            ),
            without(
                _kinds_not_run,
                "guard.kinds must name kinds of handler.kinds: handler.python.callable takes tasks without a kind only",
                "handler",
                "guard",
                cel="!has(self.guard) || !has(self.guard.kinds) || !has(self.handler.python) "
                "|| has(self.handler.python.app) "
                "|| self.guard.kinds.all(kind, has(self.handler.kinds) && kind in self.handler.kinds)",
            ),
            Rule(
                "limits.maxInFlight and limits.burst, or ratePerSecond without it, must be no less than shards, "
                "for each shard has its part",
                ("shards", "limits"),
                _some_in_each_shard,
                "(!has(self.limits.maxInFlight) || self.limits.maxInFlight >= self.shards) "
                "&& (has(self.limits.burst) ? self.limits.burst >= self.shards "
                ": (!has(self.limits.ratePerSecond) || self.limits.ratePerSecond >= self.shards))",
            ),
            Rule(
                "limits.maxBytes divided by shards must hold a task of maxPayloadBytes, maxHeaderBytes and 1024 bytes "
                "for all else",
                ("shards", "limits"),
                _room_for_the_largest,
                "!has(self.limits.maxBytes) || self.limits.maxBytes >= "
                "self.shards * (self.limits.maxPayloadBytes + self.limits.maxHeaderBytes + 1024)",
            ),
        ),
    )

    queue_name: str | None = text(
        QUEUE_NAME,
        default=None,
        doc="Name of the queue in Redis. Absent: metadata.name. Cannot be changed later.",
    )
    suspend: bool = flag(default=False, doc="Start no task. Tasks can be scheduled, and wait.")
    suspend_policy: SuspendPolicy = choice(
        "Hold",
        "Drain",
        default="Hold",
        doc="While suspend is true: Hold: workers stay and claim nothing. Drain: they end what runs, and the operator "
        "removes them.",
    )
    deletion_policy: DeletionPolicy = choice(
        "Retain",
        "Delete",
        default="Retain",
        doc="What becomes of the tasks in Redis when the DelayQueue is deleted.",
    )
    redis: Redis = section(
        Redis, doc="Where the queue is kept: exactly one of standalone, sentinel, cluster."
    )
    shards: int = whole(
        1,
        MOST_SHARDS,
        default=1,
        doc="Parts the queue is split into, each with its own keys; tasks move by themselves when it changes.",
    )
    delivery: Delivery = section(
        Delivery, default=Delivery(), doc="Leases, attempts, time limits and backoff."
    )
    durability: DurabilitySpec = section(
        DurabilitySpec, default=DurabilitySpec(), doc="What schedule waits for before it returns."
    )
    handler: Handler = section(
        Handler, doc="What is called with a due task: exactly one of python, http, exec."
    )
    scanner: Scanner = section(
        Scanner, default=Scanner(), doc="The processes that wake workers and measure the queue."
    )
    worker: Worker = section(Worker, default=Worker(), doc="The processes that call the handler.")
    autoscaling: Autoscaling | None = section(
        Autoscaling,
        default=None,
        doc="How the number of workers follows the work. Absent: it stays as it is set.",
    )
    reaper: Reaper = section(Reaper, default=Reaper(), doc="The job that recovers tasks and repairs indexes.")
    api: Api | None = section(
        Api,
        default=None,
        doc="The HTTP API, for programs in any language. Absent: none.",
    )
    schedules: Schedules | None = section(
        Schedules,
        default=None,
        doc="Accept DelaySchedules of the namespace: a user who may create one can run any task here. Absent: none.",
    )
    recovery: Recovery = section(
        Recovery, default=Recovery(), doc="How tasks whose lease expired are recovered."
    )
    guard: Guard | None = section(
        Guard,
        default=None,
        doc="What prevents a second effect of a task: exactly one guard. Absent: the handler is idempotent by itself.",
    )
    limits: Limits = section(
        Limits, default=Limits(), doc="Limits of the queue: size, rate, tasks in flight."
    )
    objective: Objective = section(Objective, default=Objective(), doc="How late tasks may start.")
    retention: Retention = section(
        Retention, default=Retention(), doc="How long dead letters and finished tasks are kept."
    )
    pod_disruption_budget: PodDisruptionBudget = section(
        PodDisruptionBudget,
        default=PodDisruptionBudget(),
        doc="How many pods a node drain may take at once.",
    )
    network_policy: NetworkPolicy = section(
        NetworkPolicy, default=NetworkPolicy(), doc="Who may connect to the pods."
    )
    monitoring: Monitoring = section(
        Monitoring, default=Monitoring(), doc="Monitoring of the queue by the Prometheus operator."
    )

    @property
    def drains(self) -> bool:
        """Whether it is suspended, and its workers end."""
        return self.suspend and self.suspend_policy == "Drain"

    @property
    def suspension(self) -> str:
        """What suspends it, for messages; empty if nothing does."""
        drain = ", with suspendPolicy Drain" if self.drains else ""
        return f"spec.suspend is true{drain}" if self.suspend else ""

    @property
    def http_services(self) -> Iterator[tuple[str, HttpService]]:
        """The services that handlers and the check call, each with its path in the document."""
        check = self.recovery.check
        found: list[tuple[str, HttpService | None]] = [("spec.handler", self.handler.http)]
        found += [("spec.recovery.check", check.http)] if check is not None else []
        found += [
            (f'spec.handler.kinds["{kind}"]', each.http) for kind, each in (self.handler.kinds or {}).items()
        ]
        yield from ((f"{path}.http", service) for path, service in found if service is not None)

    @property
    def shares_workers(self) -> bool:
        """Whether its worker may serve other queues too: neither handler nor guard can end or block the process."""
        return self.guard is None and all(each.http for each in self.handler.each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The Kubernetes metadata that delayq reads; other fields are ignored."""

    SHAPE: ClassVar[Shape] = Shape(open=True)

    name: str = text(
        OBJECT_NAME, doc="Name of the DelayQueue, and of its queue unless spec.queueName says otherwise."
    )
    namespace: str | None = text(OBJECT_NAME, default=None, doc="Namespace, on Kubernetes.")
    uid: str | None = text(
        UID, default=None, doc="Tells it from a later one of the same name. Kubernetes writes it, not you."
    )
    generation: int | None = whole(
        0,
        _MOST_GENERATIONS,
        default=None,
        doc="Counts the changes of the spec, so that of two documents with one uid the newer is known. "
        "Kubernetes writes it, not you.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayQueue:
    """A queue of tasks, each handled when it falls due."""

    SHAPE: ClassVar[Shape] = Shape(
        ignored=("status",),
        changes=(
            (
                "queueName cannot be changed",
                (
                    "(has(self.spec.queueName) ? self.spec.queueName : self.metadata.name) "
                    "== (has(oldSelf.spec.queueName) ? oldSelf.spec.queueName : oldSelf.metadata.name)"
                ),
            ),
        ),
    )

    api_version: str = constant(f"{GROUP}/{VERSION}", doc="Version of this format.")
    kind: str = constant(KIND, doc="Kind of this document.")
    metadata: Metadata = section(Metadata, doc="Name and namespace.")
    spec: Spec = section(Spec, doc="What the queue should be; redis and handler are enough.")

    @property
    def queue(self) -> str:
        """Name of the queue in Redis."""
        return self.spec.queue_name or self.metadata.name
