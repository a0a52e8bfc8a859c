"""One reading of the metrics of a queue's scanners, summed over shards. Pure.

Scanners run images that tenants choose: their numbers are not trusted and are clamped. Not here: when a reading
enqueues a reconciliation (backlog_cache.py).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.contract import metrics as table
from delayq.contract.words import TASK_KIND

from delayq_operator.scrape.shards import Down, ShardMap, Shards

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from delayq.contract.files import Reference

    from delayq_operator.base.objects import Sample

MOST: Final = 2.0**53  # beyond, JSON's numbers are not exact; status has int64
LONGEST_SECONDS: Final = 100 * 366 * 86_400.0  # a time has to stay within what the API can write
ON_TIME_SECONDS: Final = 12.0
"""Tasks count as on time again after none was late for this long."""
BLIND_SECONDS: Final = 20.0
"""A shard that is missing for longer than this is more than a failover or a leader election."""
_UID: Final = re.compile(r"[0-9a-f-]{36}")

_METRICS: Final = (
    table.REDIS_UP,
    table.REDIS_DOWN,
    table.DURABILITY_RISK,
    table.ERASED_SHARDS,
    table.PARKED_TASKS,
    table.PARKED_OLDEST_DUE,
    table.MISSING_REFERENCES,
    table.CONFLICTING_DELAYQUEUES,
    table.TASKS,
    table.EXPIRED_LEASES,
    table.OLDEST_DUE_SECONDS,
    table.NEXT_DUE_SECONDS,
    table.SHARD_LEADER,
    table.SHARD_DOWN,
    table.SHARD_MAP_EPOCH,
    table.SHARD_MAP_SHARDS,
    *table.RESHARDING,
    table.DUE_WITHIN_TASKS,
    table.DUE_KIND_TASKS,
    table.SUSPENDED,
    table.QUEUE_CLAIMED,
    table.QUEUE_RELEASED,
    table.QUEUE_RECLAIMED,
)
_OF_ALL_SHARDS: Final = frozenset(metric.name for metric in _METRICS if "shard" not in metric.labels)
NEEDED: Final = frozenset(metric.name for metric in _METRICS)
"""Names of the metrics that the operator reads; scanners export several times as many."""


@dataclass(frozen=True, slots=True)
class UnknownKind:
    """Parked tasks of one kind and version, as scanners report them."""

    kind: str
    """Empty for tasks without a kind."""
    version: int
    tasks: int
    oldest_due_at: float | None
    """Unix seconds by Redis' clock; None if it is not reported."""


class SuspendCommand(NamedTuple):
    """The command `delayq suspend` in effect, as the leader of shard 0 reports it."""

    since: float
    """Unix seconds by Redis' clock."""
    drains: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The tasks of a queue and the state of its Redis, as of `read_at`."""

    read_at: float
    """Unix seconds."""
    due: int = 0
    scheduled: int = 0
    in_flight: int = 0
    retrying: int = 0
    parked: int = 0
    unknown_kinds: tuple[UnknownKind, ...] = ()
    """Of the parked tasks; those with the most tasks first."""
    dead: int = 0
    oldest_due_at: float | None = None
    """Unix seconds; None when nothing is overdue."""
    next_due_at: float | None = None
    """Unix seconds; None when nothing waits."""
    whole: bool = False
    """Whether every shard has a leader and is in the numbers."""
    redis_up: bool = False
    outage: str = ""
    """One of contract.metrics.OUTAGES: why Redis does not serve; empty if it does, or if unknown."""
    risks: tuple[str, ...] = ()
    """Of contract.metrics.DURABILITY_RISKS, those that hold."""
    missing: tuple[Reference, ...] = ()
    """Keys of Secrets and ConfigMaps that a scanner, or the erase Job, waits for."""
    conflicts: tuple[str, ...] = ()
    """UIDs of other DelayQueues whose scanners serve the same tasks."""
    command: SuspendCommand | None = None
    """The last known one: while shard 0 has no leader, nothing changes."""
    begun: bool = True
    """Whether a scanner has begun: it can without the keys of the recovery check only."""
    shards: Shards = field(default_factory=Shards)
    late_at: float = -math.inf
    """When a reading last found tasks later than allowed, Unix seconds."""
    whole_at: float = math.inf
    """Time of the last whole reading; before there was one, time of the first reading. Unix seconds."""

    @property
    def tasks(self) -> int:
        """Tasks in every state but dead."""
        return sum(self._live)

    @property
    def _live(self) -> tuple[int, ...]:
        return self.due, self.scheduled, self.in_flight, self.retrying, self.parked

    @property
    def late_seconds(self) -> float:
        """How long the most overdue task has been due."""
        return 0.0 if self.oldest_due_at is None else self.read_at - self.oldest_due_at

    @property
    def blind(self) -> bool:
        """Whether a shard has been missing for longer than the election of another leader takes."""
        return not self.whole and self.read_at - self.whole_at >= BLIND_SECONDS

    def late(self, allowed_seconds: float) -> bool:
        """Whether tasks are later than allowed, or were within ON_TIME_SECONDS: this avoids flapping."""
        lately = 0 <= self.read_at - self.late_at < ON_TIME_SECONDS
        return self.whole and (lately or self.late_seconds > allowed_seconds)

    def waiting_late(self, allowed_seconds: float) -> float:
        """Return how many tasks wait for longer than allowed, if due times are spread evenly; at least one if any."""
        if not self.late(allowed_seconds):
            return 0.0
        share = 1 - allowed_seconds / self.late_seconds if self.late_seconds > allowed_seconds else 0.0
        return max(1.0, self.due * share)

    def facts(self, allowed_seconds: float) -> tuple[object, ...]:
        """Return the state that messages describe; `allowed_seconds` is how late tasks may start."""
        redis = self.redis_up, self.outage, self.risks, self.missing, self.begun, self.conflicts
        due, late = self.whole and self.due > 0, self.late(allowed_seconds)
        return *redis, self.command, self.whole, due, late, self.blind, *self.shards.facts

    @property
    def numbers(self) -> tuple[object, ...]:
        """The numbers of tasks, and the kinds that are parked."""
        kinds = {(each.kind, each.version) for each in self.unknown_kinds}
        return self.dead, *self._live, *self.shards.numbers, kinds

    @property
    def times(self) -> tuple[float | None, ...]:
        """The due times."""
        return self.oldest_due_at, self.next_due_at


class Reading:
    """Samples of the scanners of one queue, each shard's from one scanner only."""

    def __init__(self, expositions: Iterable[Sequence[Sample]] = (), *, error: str = "") -> None:
        """Take the numbers of each shard from its leader: standbys have none; during an election, two may lead."""
        self.answered, self.leader = False, ""  # whether any scanner did; the first that led a shard
        self.error = error  # why the first could not be read
        self._values: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
        self._shards: set[str] = set()
        self._counted: set[str] = set()
        self.shard_map: ShardMap | None = None
        self._reporters = 0  # scanners that report shards
        self._down: dict[str, list[Down]] = defaultdict(list)
        """By shard, once for each scanner that Redis does not serve with it."""
        for samples in expositions:
            self.take(samples)

    @property
    def whole(self) -> bool:
        """Whether each shard has a leader among the scanners."""
        return bool(self._expected) and self._counted >= self._expected

    @property
    def _expected(self) -> set[str]:
        """Shards of the newest shard map; a scanner with an older one may report others."""
        return self._shards if self.shard_map is None else set(map(str, range(self.shard_map.shards_in_use)))

    def take(self, samples: Iterable[Sample]) -> bool:
        """Add the samples of one scanner. Return whether it leads a shard that no other scanner did."""
        self.answered = True
        # NaN stands for an absent value.
        sane = [
            (name, labels, min(max(value, 0.0), MOST))
            for name, labels, value in samples
            if math.isfinite(value)
        ]
        shard_map = ShardMap.of(sane)
        if shard_map is not None and (self.shard_map is None or shard_map > self.shard_map):
            self.shard_map = shard_map
        reported_down = {
            each.shard: each
            for name, has, value in sane
            if name == table.SHARD_DOWN.name and value == 1 and (each := Down.of(has)) is not None
        }
        for down in reported_down.values():
            self._down[str(down.shard)].append(down)
        leads = {
            has["shard"]: value
            for name, has, value in sane
            if name == table.SHARD_LEADER.name and "shard" in has
        }
        # A leader that Redis does not serve has no numbers, which is not the same as zero.
        counted = {has.get("shard") for name, has, _ in sane if name == table.TASKS.name}
        ours = {shard for shard, value in leads.items() if value == 1 and shard in counted} - self._counted
        self._reporters += bool(leads)
        self._shards |= leads.keys()
        self._counted |= ours
        for name, labels, value in sane:
            if name in _OF_ALL_SHARDS or labels.get("shard") in ours:
                self._values[name].append((labels, value))
        return bool(ours)

    def total(self, metric: table.Metric, **labels: str) -> int:
        return int(min(MOST, sum(self.values(metric, **labels))))

    @property
    def shards(self) -> int:
        """How many shards there are numbers of."""
        return len(self._counted)

    def by_shard(self, metric: table.Metric, label: str) -> list[dict[str, float]]:
        """Every value of a metric, for each shard by a further label."""
        found: dict[str, dict[str, float]] = {shard: {} for shard in self._counted}
        for has, value in self._values[metric.name]:
            if label in has:
                found[has["shard"]][has[label]] = value
        return list(found.values())

    def values(self, metric: table.Metric, **labels: str) -> list[float]:
        return [value for has, value in self._values[metric.name] if labels.items() <= has.items()]

    def risks(self) -> tuple[str, ...]:
        held = {has.get("risk", "") for has, value in self._values[table.DURABILITY_RISK.name] if value == 1}
        return tuple(sorted(held.intersection(table.DURABILITY_RISKS)))

    def conflicts(self) -> tuple[str, ...]:
        """Return the UIDs of DelayQueues that share the tasks; nothing else that a tenant's label may say."""
        found = {has.get("uid", "") for has, _ in self._values[table.CONFLICTING_DELAYQUEUES.name]}
        return tuple(sorted(filter(_UID.fullmatch, found)))

    def missing(self, named: Collection[Reference]) -> tuple[Reference, ...]:
        """Return the keys that any scanner waits for, of those that the spec names: labels are a tenant's text."""
        labels = (has for has, _ in self._values[table.MISSING_REFERENCES.name])
        return missing_references(labels, named)

    def unknown_kinds(self) -> tuple[UnknownKind, ...]:
        """Return the kinds of parked tasks, those with the most tasks first. Scanners report at most MOST_PARKED."""
        tasks, oldest = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
        for has, value in self._values[table.PARKED_TASKS.name]:
            key = has.get("kind", ""), has.get("version", "")
            if (not key[0] or TASK_KIND.fits(key[0])) and re.fullmatch("[0-9]{1,5}", key[1]):
                tasks[key] = tasks.get(key, 0.0) + value
        for has, value in self._values[table.PARKED_OLDEST_DUE.name]:
            key = has.get("kind", ""), has.get("version", "")
            oldest[key] = min(value, oldest.get(key, value))
        found = [
            UnknownKind(kind, int(version), int(count), oldest.get((kind, version)))
            for (kind, version), count in tasks.items()
        ]
        found.sort(key=lambda each: (-each.tasks, each.kind, each.version))
        return tuple(found[: table.MOST_PARKED])

    def command(self, known: SuspendCommand | None) -> SuspendCommand | None:
        """Return the command in effect; `known`, what was read last, if no leader of shard 0 has answered."""
        if "0" not in self._counted:
            return known
        found = ((has, at) for has, at in self._values[table.SUSPENDED.name] if has.get("shard") == "0")
        return next((SuspendCommand(at, has.get("policy") == "Drain") for has, at in found), None)

    def sharding(self) -> Shards:
        missing = self._expected - self._counted
        # A starting or isolated scanner may report a shard as down that serves another scanner.
        down = {
            reports[0].shard: reports[0]
            for shard, reports in self._down.items()
            if shard in missing and len(reports) >= self._reporters
        }
        silent = {int(shard) for shard in missing if shard.isdecimal()} - down.keys()
        tasks = self.values(table.RESHARDING_TASKS)
        return Shards(
            shard_map=self.shard_map,
            down=tuple(sorted(down.values())),
            leaderless=tuple(sorted(silent)),
            tasks=self.total(table.RESHARDING_TASKS) if tasks and len(tasks) == len(self._expected) else None,
            checked=self.total(table.RESHARDING_CHECKED_TASKS),
            moved=self.total(table.RESHARDING_MIGRATED_TASKS),
            waiting=self.total(table.RESHARDING_WAITING_TASKS),
        )

    def outage(self) -> str:
        """Return why Redis does not serve, as scanners report; empty if unknown."""
        held = {has.get("cause", "") for has, value in self._values[table.REDIS_DOWN.name] if value == 1}
        return next((cause for cause in table.OUTAGES if cause in held), "")


def missing_references(
    labels: Iterable[Mapping[str, str]], named: Collection[Reference]
) -> tuple[Reference, ...]:
    """Return the references in the labels of a metric, of those that the spec names: labels are a tenant's text."""
    found = {tuple(has.get(label, "") for label in table.MISSING_REFERENCES.labels[1:]) for has in labels}
    return tuple(sorted(each for each in named if each in found))


def backlog(
    reading: Reading,
    now: float,
    references: Collection[Reference] = (),
    command: SuspendCommand | None = None,
) -> Backlog:
    """Sum a reading up; `now` in Unix seconds. `references` are those that the spec names.

    `command` is the last known one.
    """
    overdue = max(reading.values(table.OLDEST_DUE_SECONDS), default=0.0)
    next_due = min(reading.values(table.NEXT_DUE_SECONDS), default=None)
    tasks = {state: reading.total(table.TASKS, state=state) for state in table.STATES}
    up = any(reading.values(table.REDIS_UP)) or reading.shards > 0
    return Backlog(
        read_at=now,
        **tasks,
        unknown_kinds=reading.unknown_kinds(),
        oldest_due_at=max(0.0, now - overdue) if tasks["due"] and overdue > 0 else None,
        next_due_at=None if next_due is None else now + min(next_due, LONGEST_SECONDS),
        whole=reading.whole,
        redis_up=up,
        outage="" if up else reading.outage(),
        risks=reading.risks(),
        missing=reading.missing(references),
        conflicts=reading.conflicts(),
        command=reading.command(command),
        begun=bool(reading.values(table.REDIS_UP)) or not reading.missing(references),
        shards=reading.sharding(),
    )
