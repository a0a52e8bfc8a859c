"""Every condition and every reason there is, in the order people read them. Pure.

docs/operator.md lists them, a test compares. Unknown means that nobody could tell, never that nobody asked. A reason
stands for one status only, so that people can look for either.
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
        "ReferenceNotFound": _FALSE,
        "Unreachable": _FALSE,
        "PartlyUnreachable": _FALSE,
        "ScannersNotReady": _FALSE,
        "Held": _FALSE,
        "GuardUnreachable": _FALSE,
        "NoWorkers": _FALSE,
        "WorkersNotReady": _FALSE,
    },
    "Accepted": {
        "Valid": _TRUE,
        "InvalidSpec": _FALSE,
        "PolicyViolation": _FALSE,
        "ReferenceNotFound": _FALSE,
    },
    "BackendAvailable": {
        "Connected": _TRUE,
        "ScannersReady": _TRUE,
        "PartlyUnreachable": _FALSE,
        "Unreachable": _FALSE,
        "NoScanners": _UNKNOWN,
        "NotMeasured": _UNKNOWN,
    },
    "DurabilityAtRisk": {
        **{reason: _TRUE for reason, _ in RISKS.values()},
        "Durable": _FALSE,
        "FsyncUnknown": _UNKNOWN,
        "NotTold": _UNKNOWN,
        "NotMeasured": _UNKNOWN,
    },
    "ShardsSettled": {
        "Settled": _TRUE,
        "Waiting": _FALSE,
        "Announced": _FALSE,
        "Moving": _FALSE,
        "ReshardingStalled": _FALSE,
        "NoScanners": _UNKNOWN,
        "NotMeasured": _UNKNOWN,
    },
    "GuardAvailable": {
        "Connected": _TRUE,
        "NotGuarded": _TRUE,
        "PartlyUnreachable": _TRUE,
        "Unreachable": _FALSE,
        "NoWorkers": _UNKNOWN,
        "NotMeasured": _UNKNOWN,
    },
    "Progressing": {
        "NewReplicaSetAvailable": _TRUE,
        "ReplicaSetUpdated": _TRUE,
        "WaitingForDeletion": _TRUE,
        "Erasing": _TRUE,
        "DeploymentPaused": _FALSE,
        "ProgressDeadlineExceeded": _FALSE,
        "NotStarted": _FALSE,
    },
    "Degraded": {
        "NameTaken": _TRUE,
        "ApplyFailed": _TRUE,
        "ServedTwice": _TRUE,
        "QueueShared": _TRUE,
        "ForeignFields": _TRUE,
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
        "TooManyReplicas": _TRUE,
        "TooFewReplicas": _TRUE,
        "ScaleUpLimit": _TRUE,
        "InFlightLimit": _TRUE,
        "RateLimit": _TRUE,
        "ScaleDownLimit": _TRUE,
        "DesiredWithinRange": _FALSE,
    },
    "FallbackActive": {"MetricsUnavailable": _TRUE, "NotNeeded": _FALSE},
    "CapacityShortfallExpected": {
        "TooFewReplicasAllowed": _TRUE,
        "CapacitySuffices": _FALSE,
        "NotForecast": _UNKNOWN,
    },
    "ObjectiveMet": {
        "OnTime": _TRUE,
        "GuardUnreachable": _FALSE,
        "WorkersNotReady": _FALSE,
        "InFlightLimit": _FALSE,
        "RateLimit": _FALSE,
        "NothingClaimed": _FALSE,
        "TooManyReplicas": _FALSE,
        "ScaleUpLimit": _FALSE,
        "Late": _FALSE,
        "NotMeasured": _UNKNOWN,
    },
    "Paused": {"PausedByAnnotation": _TRUE, "InvalidAnnotation": _FALSE, "Reconciling": _FALSE},
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
