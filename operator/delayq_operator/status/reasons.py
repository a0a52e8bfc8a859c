"""All condition types and their reasons, in display order. Pure.

docs/reference/conditions.md lists them; a test compares. Within one condition, a reason stands for one status.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from delayq_operator.base.phrases import RISKS
from delayq_operator.scaling.scaling import NOT_DECIDED

if TYPE_CHECKING:
    from collections.abc import Mapping

Status = Literal["True", "False", "Unknown"]


def _reasons(*, true: str = "", false: str = "", unknown: str = "") -> Mapping[str, Status]:
    given: tuple[tuple[Status, str], ...] = (("True", true), ("False", false), ("Unknown", unknown))
    return {reason: status for status, reasons in given for reason in reasons.split()}


_REFUSED: Final = "InvalidSpec PolicyViolation RedisNotEmpty"

REASONS: Final[Mapping[str, Mapping[str, Status]]] = {
    "Ready": _reasons(
        true="AsExpected Suspended",
        false=f"Deleting {_REFUSED} ReferenceNotFound Unreachable PartiallyUnreachable ScannersNotReady"
        " GuardUnreachable NoWorkers WorkersNotReady",
    ),
    "Accepted": _reasons(true="Valid", false=_REFUSED),
    "BackendAvailable": _reasons(
        true="Connected ScannersReady",
        false="PartiallyUnreachable Unreachable",
        unknown="NoScanners MetricsUnavailable",
    ),
    "DurabilityMet": _reasons(
        true="NoRiskFound",
        false=" ".join(reason for reason, _ in RISKS.values()),
        unknown="FsyncUnknown DurabilityUnknown MetricsUnavailable",
    ),
    "ReshardingComplete": _reasons(
        true="Complete",
        false="Pending Preparing Migrating ReshardingStalled",
        unknown="NoScanners MetricsUnavailable",
    ),
    "GuardAvailable": _reasons(
        true="Connected PartiallyUnreachable", false="Unreachable", unknown="NoWorkers MetricsUnavailable"
    ),
    "ApiAvailable": _reasons(true="PodsReady", false="NoReplicas PodsNotReady IssuerKeysNotFound"),
    "Progressing": _reasons(
        true="NewReplicaSetAvailable ReplicaSetUpdated WaitingForDeletion Erasing",
        false="ProgressDeadlineExceeded DeploymentNotFound",
        unknown="ReconciliationSuspended DeploymentPaused",
    ),
    "Degraded": _reasons(
        true="NameConflict ApplyFailed OperatorConflict QueueConflict UnmanagedFields EraseFailed PodsRejected"
        " RolloutPaused ReferenceNotFound PodsFailing InvalidAnnotation TasksParked",
        false="AsExpected",
    ),
    "ScalingActive": _reasons(
        true="ValidMetricFound ExternalAutoscaler",
        false="MetricsUnavailable FallbackActive AutoscalingDisabled Suspended ReconciliationSuspended"
        " GuardUnreachable",
        unknown=NOT_DECIDED,
    ),
    "ScalingLimited": _reasons(
        true="MaxReplicas MinReplicas ScaleUpPolicy MaxInFlight RatePerSecond ScaleDownPolicy",
        false="DesiredWithinRange",
    ),
    "CapacityShortfallExpected": _reasons(true="MaxReplicas"),
    "ObjectiveMet": _reasons(
        true="WithinObjective",
        false="Suspended GuardUnreachable WorkersNotReady MaxInFlight RatePerSecond NoTasksClaimed MaxReplicas"
        " ScaleUpPolicy TasksLate",
        unknown="MetricsUnavailable",
    ),
    "Suspended": _reasons(true="Holding Draining Drained", false="NotSuspended", unknown="InvalidSpec"),
}
"""Condition → reason → the status it stands for."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: type, status, reason and message."""

    type: str
    status: Status
    reason: str
    message: str


def condition(kind: str, reason: str, message: str) -> Condition:
    """Make a condition; its status follows from the reason."""
    return Condition(kind, REASONS[kind][reason], reason, message)
