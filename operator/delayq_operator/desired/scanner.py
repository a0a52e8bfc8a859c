"""The scanner Deployment: leaders and standbys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.desired import checksum, code, pod, probes, reads
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts, Setting
    from delayq_operator.desired.pod import Role

REVISIONS_KEPT: Final = 2  # for inspection only: users roll back the DelayQueue


def deployment(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Return the Deployment."""
    name = queue.metadata.name
    template = pod.template(name, setting, role(queue, setting))
    own = checksum.of_scanner(queue, facts)
    inputs = checksum.of_deployment(own, queue, facts, template=template, component="scanner")
    return child(
        names.DEPLOYMENT,
        queue,
        facts,
        name=names.scanner(name),
        component="scanner",
        annotations=checksum.remembered(inputs),
        spec={
            "replicas": queue.spec.scanner.replicas,
            "revisionHistoryLimit": revisions(queue.spec.scanner.revision_history_limit),
            "selector": {"matchLabels": names.selector(name, "scanner")},
            # Create before delete: there is always a candidate for leadership.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": checksum.annotated(template, inputs),
        },
    )


def revisions(limit: int | None) -> int:
    """Return how many replaced ReplicaSets a Deployment keeps."""
    return REVISIONS_KEPT if limit is None else limit


def role(queue: DelayQueue, setting: Setting) -> Role:
    """Return the role of scanner pods."""
    return code.role(
        queue,
        setting,
        "scanner",
        mounted=reads.by_scanner(queue.spec),
        template=queue.spec.scanner.template,
        probes=probes.of_server(queue),
        # No argument: a check runs in the user's image, whose version may not have it.
        container={"env": [{"name": names.HORIZONS_VARIABLE, "value": str(names.HORIZONS_PORT)}]},
        pod={"topologySpreadConstraints": _spread(queue.metadata.name)},
    )


def _spread(name: str) -> list[Object]:
    """Spread scanners over nodes and zones if possible (ScheduleAnyway).

    A constraint replaces the scheduler's defaults, so both are named. Pods of the old revision do not count: else the
    last new pod could share a node with another new one.
    """
    selector = {"matchLabels": names.selector(name, "scanner")}
    return [
        {
            "topologyKey": key,
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
            "matchLabelKeys": ["pod-template-hash"],
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]
