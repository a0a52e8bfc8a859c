"""The worker Deployment, without spec.replicas: the scaler writes that with its own field manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.desired import checksum, pod, probes, reads
from delayq_operator.desired.child import Object, child
from delayq_operator.desired.pod import Role
from delayq_operator.desired.scanner import revisions

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts, Setting

YOUNG_SECONDS: Final = 2
"""Delay of SIGTERM. Process 1 of a container ignores SIGTERM until Python has set a handler.

A pod that is deleted while it starts would otherwise claim until it is killed. The worker keeps claiming during the
delay.
"""


def deployment(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Return the Deployment."""
    name = queue.metadata.name
    template = pod.template(name, setting, role(queue, setting))
    own = checksum.of_worker(queue, facts.inputs.get("worker", {}))
    inputs = checksum.of_deployment(own, queue, facts, template=template, component="worker")
    return child(
        names.DEPLOYMENT,
        queue,
        facts,
        name=names.worker(name),
        component="worker",
        annotations=checksum.remembered(inputs),
        spec={
            "revisionHistoryLimit": revisions(queue.spec.worker.revision_history_limit),
            "selector": {"matchLabels": names.selector(name, "worker")},
            # Old workers stop only after new ones are ready: a handler that cannot be imported stops the rollout, and
            # the old workers keep running.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            "template": checksum.annotated(template, inputs),
        },
    )


def role(queue: DelayQueue, setting: Setting) -> Role:
    """Return the role of worker pods."""
    spec = queue.spec
    return Role(
        component="worker",
        image=spec.worker.image or setting.worker_image,
        resources=pod.OF_CODE,
        grace_seconds=spec.worker.termination_grace_period_seconds,
        mounted=reads.by_worker(spec),
        template=spec.worker.template,
        probes=probes.of_server(queue),
        container=_stops_later(
            spec.worker.termination_grace_period_seconds - spec.worker.drain_timeout_seconds
        ),
        protected={
            "terminationGracePeriodSeconds": "has a field of its own, spec.worker.terminationGracePeriodSeconds"
        },
    )


def _stops_later(spare_seconds: int) -> Object:
    """Return the preStop hook, if the grace period leaves time for it after spec.worker.drainTimeoutSeconds."""
    if spare_seconds <= YOUNG_SECONDS:
        return {}
    return {"lifecycle": {"preStop": {"sleep": {"seconds": YOUNG_SECONDS}}}}
