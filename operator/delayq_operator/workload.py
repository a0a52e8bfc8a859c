"""A Deployment's status in the words that conditions need. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq_operator import names

if TYPE_CHECKING:
    from delayq_operator.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Replicas of a Deployment; all zero when there is none."""

    exists: bool = False
    wanted: int = 0
    pods: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    complete: bool = True
    """Whether the roll-out of the latest spec has once come to its end; what fails later is no roll-out."""
    current: bool = False
    """Whether the Deployment's controller has seen its latest spec."""
    stuck: str = ""
    """Why the roll-out made no progress, when its deadline has passed."""
    inputs: str = ""
    """Hash of what the pods were started with."""

    @property
    def rolling(self) -> bool:
        """Whether pods are still being started or replaced."""
        behind = self.updated < self.wanted or (self.available < self.wanted and not self.complete)
        return not self.current or behind or self.pods > self.updated


def workload(body: Object | None) -> Workload:
    """Read a Deployment as the API server returned it."""
    if body is None:
        return Workload()
    spec, status = body["spec"], body.get("status", {})
    annotations = spec["template"]["metadata"].get("annotations", {})
    return Workload(
        exists=True,
        wanted=spec.get("replicas", 1),
        pods=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        current=status.get("observedGeneration", 0) >= body["metadata"]["generation"],
        complete=_complete(status.get("conditions") or ()),
        stuck=_stuck(status.get("conditions") or ()),
        inputs=annotations.get(names.CHECKSUM, ""),
    )


def _complete(conditions: Any) -> bool:  # noqa: ANN401 -- JSON
    reasons = [condition.get("reason") for condition in conditions if condition["type"] == "Progressing"]
    return reasons in ([], ["NewReplicaSetAvailable"])


def _stuck(conditions: Any) -> str:  # noqa: ANN401 -- JSON
    for condition in conditions:
        if condition["type"] == "Progressing" and condition["status"] == "False":
            return str(condition.get("message", "")) or str(condition.get("reason", ""))
    return ""
