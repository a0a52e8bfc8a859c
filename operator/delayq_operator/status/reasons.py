"""Every condition and every reason there is, in the order people read them. Pure.

docs/reference/operator.md lists them, a test compares. Unknown means that the operator could not find out, never that
it did not try. Within one condition, a reason stands for one status.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from delayq_operator.base.words import RISKS
from delayq_operator.scaling import scaling

if TYPE_CHECKING:
    from collections.abc import Mapping

Status = Literal["True", "False", "Unknown"]
_TRUE: Final = "True"
_FALSE: Final = "False"
_UNKNOWN: Final = "Unknown"

REASONS: Final[Mapping[str, Mapping[str, Status]]] = {
    "Ready": {
        "AsExpected": _TRUE,
        "Deleting": _FALSE,
        "InvalidSpec": _FALSE,
        "PolicyViolation": _FALSE,
        "RedisNotEmpty": _FALSE,
        "ReferenceNotFound": _FALSE,
        "Unreachable": _FALSE,
        "PartiallyUnreachable": _FALSE,
        "ScannersNotReady": _FALSE,
        "ClaimsSuspended": _FALSE,
        "GuardUnreachable": _FALSE,
        "NoWorkers": _FALSE,
        "WorkersNotReady": _FALSE,
    },
    "Accepted": {
        "Valid": _TRUE,
        "InvalidSpec": _FALSE,
        "PolicyViolation": _FALSE,
        "RedisNotEmpty": _FALSE,
        "ReferenceNotFound": _FALSE,
    },
    "BackendAvailable": {
        "Connected": _TRUE,
        "ScannersReady": _TRUE,
        "PartiallyUnreachable": _FALSE,
        "Unreachable": _FALSE,
        "NoScanners": _UNKNOWN,
        "MetricsUnavailable": _UNKNOWN,
    },
    "DurabilityAtRisk": {
        **{reason: _TRUE for reason, _ in RISKS.values()},
        "Durable": _FALSE,
        "FsyncUnknown": _UNKNOWN,
        "DurabilityUnknown": _UNKNOWN,
        "MetricsUnavailable": _UNKNOWN,
    },
    "ReshardingComplete": {
        "Complete": _TRUE,
        "Pending": _FALSE,
        "Preparing": _FALSE,
        "Migrating": _FALSE,
        "ReshardingStalled": _FALSE,
        "NoScanners": _UNKNOWN,
        "MetricsUnavailable": _UNKNOWN,
    },
    "GuardAvailable": {
        "Connected": _TRUE,
        "PartiallyUnreachable": _TRUE,
        "Unreachable": _FALSE,
        "NoWorkers": _UNKNOWN,
        "MetricsUnavailable": _UNKNOWN,
    },
    "Progressing": {
        "NewReplicaSetAvailable": _TRUE,
        "ReplicaSetUpdated": _TRUE,
        "WaitingForDeletion": _TRUE,
        "Erasing": _TRUE,
        "DeploymentPaused": _FALSE,
        "ProgressDeadlineExceeded": _FALSE,
        "DeploymentNotFound": _FALSE,
    },
    "Degraded": {
        "NameConflict": _TRUE,
        "ApplyFailed": _TRUE,
        "OperatorConflict": _TRUE,
        "QueueConflict": _TRUE,
        "UnmanagedFields": _TRUE,
        "EraseFailed": _TRUE,
        "PodsRejected": _TRUE,
        "RolloutPaused": _TRUE,
        "PodsFailing": _TRUE,
        "AsExpected": _FALSE,
    },
    "ScalingActive": {
        **{reason: _TRUE if active else _FALSE for reason, active in scaling.REASONS.items()},
        scaling.NOT_DECIDED: _UNKNOWN,
    },
    "ScalingLimited": {
        "MaxReplicas": _TRUE,
        "MinReplicas": _TRUE,
        "ScaleUpPolicy": _TRUE,
        "MaxInFlight": _TRUE,
        "RatePerSecond": _TRUE,
        "ScaleDownPolicy": _TRUE,
        "DesiredWithinRange": _FALSE,
    },
    "FallbackActive": {"MetricsUnavailable": _TRUE},
    "CapacityShortfallExpected": {"MaxReplicas": _TRUE},
    "ObjectiveMet": {
        "WithinObjective": _TRUE,
        "GuardUnreachable": _FALSE,
        "WorkersNotReady": _FALSE,
        "MaxInFlight": _FALSE,
        "RatePerSecond": _FALSE,
        "NoTasksClaimed": _FALSE,
        "MaxReplicas": _FALSE,
        "ScaleUpPolicy": _FALSE,
        "TasksLate": _FALSE,
        "MetricsUnavailable": _UNKNOWN,
    },
    "Paused": {"PausedByAnnotation": _TRUE, "InvalidAnnotation": _FALSE},
}
"""Condition → reason → the status it stands for."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that is true, false or unknown, and why."""

    type: str
    status: Status
    reason: str
    message: str


def told(kind: str, reason: str, message: str) -> Condition:
    """Make a condition; its status follows from the reason."""
    return Condition(kind, REASONS[kind][reason], reason, message)
