"""Builds the status of a DelayQueue from a view, and decides when to write it. Pure.

A change of numbers alone is written at most every NUMBERS_SECONDS, and only if it is significant. Metrics are exact.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.base.phrases import timestamp
from delayq_operator.scaling.scaling import NOT_DECIDED
from delayq_operator.scrape.changes import EXACT_UP_TO, NUMBERS_SECONDS, SAME_SECONDS, bucket
from delayq_operator.status.readiness import everything
from delayq_operator.status.reasons import REASONS
from delayq_operator.status.sharding_conditions import resharding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq_operator.scrape.backlog import Backlog
    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View

Status = dict[str, Any]

OF_READINGS: Final = frozenset({"BackendAvailable", "DurabilityMet", "ObjectiveMet"})
"""Conditions that rest on a reading of the scanners."""

OF_DECISIONS: Final = frozenset({"ScalingActive", "ScalingLimited", "CapacityShortfallExpected"})
"""Conditions that rest on a decision on the number of workers."""

DECIDED: Final = frozenset({"ValidMetricFound", "MetricsUnavailable", "FallbackActive"})
"""Reasons of ScalingActive after a decision."""

PACED: Final = frozenset({"ScalingLimited"})
"""Conditions that can change with every decision: they are written as rarely as numbers."""

PACED_REASONS: Final = frozenset({"ObjectiveMet"})
"""Conditions whose reason can change with every decision."""

REMEMBERED: Final = ("lastScaleTime", "leadTimeSeconds", "handlerMilliseconds")
"""Fields of status.scaling that stay while there is no decision."""

OBSERVED_SHARE: Final = 0.2
MOST_NUMBER: Final = 2_000_000_000
RUNS: Final = ("lastScheduleTime", "lastSuccessfulTime")
"""Fields of status.reaper."""
RUNS_SECONDS: Final = 600.0  # the reaper may run every minute; the CronJob has the exact time
UNCOMPARED: Final = frozenset({"observedTime", "message", "recommendedReplicas"})


def status(view: View, previous: Mapping[str, Any], now: float) -> Status:
    """Return the status to apply; `now` in Unix seconds. Values that are unknown now keep their last known value."""
    made: Status = {
        "observedGeneration": view.resource.generation,
        "conditions": _conditions(view, previous, now),
        **_workers(view),
        "scanner": {"replicas": view.scanner.pods, "readyReplicas": view.scanner.ready},
    }
    if view.queue is not None and view.queue.spec.api is not None:
        made["api"] = {"replicas": view.api.pods, "readyReplicas": view.api.ready}
    if (scaling := _scaling(view, previous.get("scaling") or {})) is not None:
        made["scaling"] = scaling
    if reaper := {field: view.reaper[field] for field in RUNS if field in view.reaper}:
        made["reaper"] = reaper
    if view.erasing is not None and view.erasing.shards:
        made["erase"] = {"erasedShards": view.erasing.erased_shards, "shards": view.erasing.shards}
        if view.erasing.failed:
            made["erase"]["message"] = view.erasing.message[:1024]
    if (moving := resharding(view)) is not None:
        made["resharding"] = moving
    elif "resharding" in previous and (view.shards is None or view.shards.shard_map is None):
        made["resharding"] = previous["resharding"]
    if view.backlog is not None and view.backlog.whole:
        made["backlog"] = _backlog(view.backlog) | _due_within_lead(view, previous.get("backlog") or {})
    elif "backlog" in previous:
        made["backlog"] = previous["backlog"]
    return made


def _workers(view: View) -> Status:
    made: Status = {
        "replicas": view.worker.pods,
        "readyReplicas": view.worker.ready,
        "selector": ",".join(f"{k}={v}" for k, v in names.selector(view.resource.key.name, "worker").items()),
    }
    if view.scale is not None:
        made["desiredReplicas"] = view.scale.replicas
    return made


def _scaling(view: View, previous: Mapping[str, Any]) -> Status | None:
    """Return status.scaling; a restarted operator reads its memory from it."""
    if view.queue is None or view.scale is None:
        return dict(previous) or None
    autoscaling = view.queue.spec.autoscaling
    if autoscaling is None or autoscaling.mode != "Internal":
        return None
    made: Status = {field: previous[field] for field in REMEMBERED if field in previous}
    observed, decision = view.observed, view.scale.decision
    if observed.lead_seconds is not None:
        made["leadTimeSeconds"] = _lead(observed.lead_seconds)
    if observed.handler_seconds is not None:
        made["handlerMilliseconds"] = bucket(max(1, _whole(observed.handler_seconds * 1000)))
    if observed.scaled_at is not None:
        made["lastScaleTime"] = timestamp(observed.scaled_at)
    if decision is None:
        return {**previous, **made} if view.scale.reason == NOT_DECIDED else (made or None)
    made |= {"recommendedReplicas": decision.replicas, "message": view.scale.message[:1024]}
    if decision.limited_by != "None":
        made["limitedBy"] = decision.limited_by
    if decision.wake_seconds is not None:
        made["wakeTime"] = timestamp(decision.at + decision.wake_seconds)
    return made


def _lead(seconds: float) -> int:
    """Round up to two digits: the lead time is a safety margin."""
    found = _whole(seconds)
    step = int("1" + "0" * (len(str(found)) - 2)) if found > EXACT_UP_TO else 1
    return -(-found // step) * step


def _whole(value: float) -> int:
    """Round up, limited to an int32 of the API: workers may report any number."""
    return ceil(value) if 0 <= value < MOST_NUMBER else MOST_NUMBER


def _conditions(view: View, previous: Mapping[str, Any], now: float) -> list[Status]:
    before = {entry["type"]: entry for entry in previous.get("conditions") or ()}
    made = {each.type: _entry(each, before, view.resource.generation, now) for each in everything(view)}
    made |= {kind: before[kind] for kind in _kept(view, made, before)}
    return [made[kind] for kind in REASONS if kind in made]


def _kept(view: View, made: Mapping[str, Status], before: Mapping[str, Status]) -> frozenset[str]:
    """Name the conditions that stay: those of the previous operator until this one has decided, and what is unread."""
    unread = view.backlog is None or not view.backlog.whole
    parked = before.get("Degraded", {}).get("reason") == "TasksParked"
    kinds = frozenset({"Degraded"} if unread and parked and made["Degraded"]["status"] == "False" else ())
    waiting = view.scale is not None and view.scale.reason == NOT_DECIDED and not view.observed.evaluated
    decided = before.get("ScalingActive", {}).get("reason") in DECIDED
    if view.backlog is None and not view.unread and view.scanner.ready:  # this operator has not read them yet
        kinds |= {kind for kind in OF_READINGS & before.keys() if before[kind]["status"] != "Unknown"}
    return (kinds | (OF_DECISIONS if waiting and decided else frozenset())) & before.keys()


def _entry(condition: Condition, before: Mapping[str, Status], generation: int, now: float) -> Status:
    old = before.get(condition.type, {})
    since = old["lastTransitionTime"] if old.get("status") == condition.status else timestamp(now)
    return {
        "type": condition.type,
        "status": condition.status,
        "observedGeneration": generation,
        "lastTransitionTime": since,
        "reason": condition.reason,
        "message": condition.message[:32768],
    }


def _due_within_lead(view: View, previous: Mapping[str, Any]) -> Status:
    """Return dueWithinLeadTime of the last decision's sample; a restarted operator keeps it until it decides."""
    decision = view.decision
    if decision is not None and decision.sample is not None:
        lead = decision.policy.lead(decision.sample.lead_seconds)
        return {"dueWithinLeadTime": decision.sample.within(lead)}
    waiting = view.scale is not None and view.scale.reason == NOT_DECIDED
    return {field: previous[field] for field in ("dueWithinLeadTime",) if waiting and field in previous}


def _backlog(backlog: Backlog) -> Status:
    made: Status = {
        "due": backlog.due,
        "scheduled": backlog.scheduled,
        "inFlight": backlog.in_flight,
        "retrying": backlog.retrying,
        "dead": backlog.dead,
        "parked": backlog.parked,
        "observedTime": timestamp(backlog.read_at),
    }
    if backlog.oldest_due_at is not None:
        made["oldestDueTime"] = timestamp(backlog.oldest_due_at)
    if backlog.next_due_at is not None:
        made["nextDueTime"] = timestamp(backlog.next_due_at)
    return made


def wait_seconds(made: Status, previous: Mapping[str, Any], since_write: float) -> float | None:
    """Return how long to wait before the status is written: 0 now, None not at all."""
    if _facts(made) != _facts(previous):
        return 0.0
    if _messages(made) == _messages(previous) and _alike(made, previous):
        return None
    return max(0.0, NUMBERS_SECONDS - since_write)


def _facts(status: Mapping[str, Any]) -> Status:
    """Return the status without values that change by themselves: numbers, and messages that contain numbers."""
    moving = ("backlog", "conditions", "reaper", "scaling", "resharding")
    resharding = status.get("resharding") or {}
    return {name: value for name, value in status.items() if name not in moving} | {
        "reaper": sorted(status.get("reaper") or ()),
        "scaling": (status.get("scaling") or {}).get("recommendedReplicas"),
        "resharding": [resharding.get(field) for field in ("fromShards", "toShards", "message")],
        "conditions": [
            _fact(entry) for entry in status.get("conditions") or () if entry["type"] not in PACED
        ],
    }


def _fact(condition: Mapping[str, Any]) -> Status:
    moving = {"message", "reason"} if condition["type"] in PACED_REASONS else {"message"}
    return {name: value for name, value in condition.items() if name not in moving}


def _messages(status: Mapping[str, Any]) -> list[str]:
    """Return reasons and messages; of ScalingActive the reason only, as its message changes with every decision."""
    return [
        entry["reason"] if entry["type"] == "ScalingActive" else f"{entry['reason']}: {entry['message']}"
        for entry in status.get("conditions") or ()
    ]


def _alike(made: Mapping[str, Any], previous: Mapping[str, Any]) -> bool:
    """Whether no number changed significantly."""
    one, other = _measured(made), _measured(previous)
    return one.keys() == other.keys() and all(_same(field, one[field], other[field]) for field in one)


def _measured(status: Mapping[str, Any]) -> Status:
    """Return the measured values by field, without times of observation and messages."""
    parts = (status.get(part) or {} for part in ("backlog", "reaper", "scaling", "resharding"))
    found = {field: value for part in parts for field, value in part.items()}
    return {field: value for field, value in found.items() if field not in UNCOMPARED}


def _same(field: str, value: Any, before: Any) -> bool:  # noqa: ANN401 -- JSON
    if field in ("limitedBy", "lastScaleTime"):
        return bool(value == before)
    if field in ("leadTimeSeconds", "handlerMilliseconds"):
        return bool(abs(value - before) <= max(1, before * OBSERVED_SHARE))
    if isinstance(value, int):
        return bucket(value) == bucket(before)
    apart = abs((datetime.fromisoformat(value) - datetime.fromisoformat(before)).total_seconds())
    return apart < (RUNS_SECONDS if field in RUNS else SAME_SECONDS)
