"""Reads a Deployment's status for conditions. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delayq.kube.objects import Object

_POD: Final = re.compile(r'^pods "[^"]*" is forbidden: ')
"""The start of a rejection. Without it, a message stays the same although each attempt has another pod name."""
_COMPLETE: Final = "NewReplicaSetAvailable"
POD_SECONDS: Final = 15.0
"""A Job that has no pod for longer than this is stuck: the API server rejects its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Replicas of a Deployment; zero without one."""

    exists: bool = False
    wanted: int = 0
    pods: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    complete: bool = True
    """Whether the roll-out of the latest spec has completed. If pods fail later, it stays True."""
    current: bool = False
    """Whether the Deployment controller has observed the latest spec."""
    stuck: str = ""
    """Why the roll-out made no progress until its deadline; otherwise empty."""
    refused: str = ""
    """Why the API server rejects further pods; otherwise empty."""
    paused: bool = False
    """Whether it is paused with `kubectl rollout pause`."""

    @property
    def unwanted(self) -> bool:
        """Whether it exists with zero desired replicas."""
        return self.exists and self.wanted == 0

    @property
    def rolling(self) -> bool:
        """Whether pods are still being started or replaced."""
        behind = self.updated < self.wanted or (self.available < self.wanted and not self.complete)
        return not self.current or behind or self.pods > self.updated


def workload(body: Object | None) -> Workload:
    if body is None:
        return Workload()
    spec, status = body["spec"], body.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    progressing = conditions.get("Progressing", {})
    return Workload(
        exists=True,
        wanted=spec.get("replicas", 1),
        pods=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        current=status.get("observedGeneration", 0) >= body["metadata"]["generation"],
        complete=progressing.get("reason", _COMPLETE) == _COMPLETE,
        stuck=_why(progressing, "False"),
        refused=_POD.sub("", _why(conditions.get("ReplicaFailure", {}), "True")),
        paused=spec.get("paused", False),
    )


def _why(condition: Object, status: str) -> str:
    """Return the message of a condition with this status, or its reason; empty with another status."""
    given = condition.get("message") or condition.get("reason") or ""
    return str(given) if condition.get("status") == status else ""


def podless_seconds(job: Object, now: float) -> float | None:
    """Return for how long a Job has had no pod at all; None when it has one, had one, or wants none.

    A Deployment reports the cause in a condition, a Job only in Events, which the operator may not read.
    """
    status = job.get("status", {})
    counted = ("active", "succeeded", "failed", "terminating")
    if job["spec"].get("suspend") or "startTime" not in status or any(status.get(each) for each in counted):
        return None
    if any(condition["type"] == "Complete" for condition in status.get("conditions") or ()):
        return None
    return max(0.0, now - datetime.fromisoformat(status["startTime"]).timestamp())


def podless_run_seconds(reaper: Object, newest: str, now: float) -> float | None:
    """Return for how long a running Job of a CronJob has had no pod; `newest` is when the newest pod was created.

    A Job that was deleted, or has ended, proves nothing: it is not in `status.active`.
    """
    status = reaper.get("status", {})
    begun = status.get("lastScheduleTime", "")
    if not status.get("active") or reaper["spec"].get("suspend") or newest >= begun:
        return None
    return max(0.0, now - datetime.fromisoformat(begun).timestamp())
