"""The scanner Deployment: a few pods that stand by for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.desired import checksum, code, pod, probes, reads
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts, Setting
    from delayq_operator.desired.pod import Role

REVISIONS_KEPT: Final = 2  # for reading only: who rolls back rolls back the DelayQueue


def deployment(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Make the Deployment."""
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
            # One more before one less: there is always one to lead.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": checksum.annotated(template, inputs),
        },
    )


def revisions(limit: int | None) -> int:
    """Return how many replaced ReplicaSets a Deployment keeps."""
    return REVISIONS_KEPT if limit is None else limit


def role(queue: DelayQueue, setting: Setting) -> Role:
    """Say what a scanner pod is."""
    return code.role(
        queue,
        setting,
        "scanner",
        mounted=reads.by_scanner(queue.spec),
        template=queue.spec.scanner.template,
        probes=probes.of_server(queue),
        # No argument: a check of the user's brings an image of its own, whose version may not know it.
        container={"env": [{"name": names.HORIZONS_VARIABLE, "value": str(names.HORIZONS_PORT)}]},
        pod={"topologySpreadConstraints": _spread(queue.metadata.name)},
    )


def _spread(name: str) -> list[Object]:
    """Put scanners on different nodes and into different zones if that can be; one alone is better than none.

    Anti-affinity would say the same again. Naming a constraint turns off the scheduler's own, so both are named.
    Pods of the revision that goes are not counted, or the last new one would have to sit beside another new one.
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
