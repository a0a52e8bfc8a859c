"""spec.scanner, spec.worker and spec.reaper: the processes that serve a queue."""

from __future__ import annotations

from dataclasses import dataclass
from operator import gt
from typing import TYPE_CHECKING, ClassVar, Final

from delayq.contract.fields import flag, optional_dictionary, pod_template, text, whole
from delayq.contract.record import Rule, Shape, without
from delayq.contract.words import ANNOTATION_VALUE, IMAGE, LABEL_NAME, SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Mapping


REVISIONS = (
    "Replaced ReplicaSets to keep for comparison. To roll back, apply the earlier DelayQueue. Absent: 2."
)
RESERVED: Final = ("delayq.dev/", "kubectl.kubernetes.io/", "deployment.kubernetes.io/")
"""Annotations that the operator, kubectl and Kubernetes write."""
_ALLOWED: Final = without(
    lambda annotations: [name for name in annotations or () if name.startswith(RESERVED)],
    f"annotations must not begin with {', '.join(RESERVED[:-1])} or {RESERVED[-1]}",
    "annotations",
    cel="!has(self.annotations) || "
    + " && ".join(f"!self.annotations.exists(name, name.startsWith('{each}'))" for each in RESERVED),
)


def _annotations(kind: str) -> Mapping[str, str] | None:
    doc = f"Annotations of the {kind} itself, for controllers that restart pods when a Secret or ConfigMap changes."
    return optional_dictionary(name=LABEL_NAME, value=ANNOTATION_VALUE, most=32, doc=doc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanner:
    """Scanners wake workers when tasks fall due, and measure the queue."""

    SHAPE: ClassVar[Shape] = Shape(rules=(_ALLOWED,))

    replicas: int = whole(
        0,
        100,
        default=2,
        doc="Number of scanner pods. One of them leads each shard; if it stops, another takes over. 0: workers poll.",
    )
    revision_history_limit: int | None = whole(0, 100, default=None, doc=REVISIONS)
    annotations: Mapping[str, str] | None = _annotations("Deployment")
    template: Mapping[str, object] | None = pod_template()


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Workers claim due tasks and call the handler."""

    SHAPE: ClassVar[Shape] = Shape(
        rules=(
            _ALLOWED,
            Rule(
                "terminationGracePeriodSeconds must exceed drainTimeoutSeconds",
                ("termination_grace_period_seconds", "drain_timeout_seconds"),
                gt,
                # Both are always there, except in the default {} itself, which the API server tries the rule on.
                "!has(self.terminationGracePeriodSeconds) || !has(self.drainTimeoutSeconds) "
                "|| self.terminationGracePeriodSeconds > self.drainTimeoutSeconds",
            ),
        )
    )

    image: str | None = text(
        IMAGE,
        default=None,
        doc="Container image with the handler's code. Absent: the operator's own worker image.",
    )
    concurrency: int = whole(1, 10_000, default=32, doc="Tasks one worker runs at a time.")
    replicas: int = whole(
        0,
        10_000,
        default=1,
        doc="Worker pods. Ignored with autoscaling of mode Internal; an HPA writes here in mode External.",
    )
    termination_grace_period_seconds: int = whole(
        2, 604_800, default=60, doc="How long Kubernetes waits for a worker to stop before it kills it."
    )
    drain_timeout_seconds: int = whole(
        1,
        604_800,
        default=45,
        doc="How long running handlers may finish when a worker stops; then their tasks are handed back.",
    )
    revision_history_limit: int | None = whole(0, 100, default=None, doc=REVISIONS)
    annotations: Mapping[str, str] | None = _annotations("Deployment")
    template: Mapping[str, object] | None = pod_template()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaper:
    """The reaper recovers tasks of crashed workers and repairs the indexes; a CronJob."""

    SHAPE: ClassVar[Shape] = Shape(
        rules=(_ALLOWED,),
        renamed=tuple(
            (field, "remove it, the operator has a fixed value")
            for field in (
                "timeZone",
                "startingDeadlineSeconds",
                "successfulJobsHistoryLimit",
                "failedJobsHistoryLimit",
                "sweepPeriodSeconds",
            )
        ),
    )

    schedule: str | None = text(
        SCHEDULE,
        default=None,
        doc="When a run starts, as a cron schedule. Absent: every five minutes, from a minute that follows from "
        "namespace and name, or every minute while scanner.replicas is 0.",
    )
    suspend: bool = flag(default=False, doc="Start no further runs.")
    annotations: Mapping[str, str] | None = _annotations("CronJob")
    template: Mapping[str, object] | None = pod_template()
