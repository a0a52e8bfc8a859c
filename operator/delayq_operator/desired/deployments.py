"""The Deployments of scanners, workers and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.desired import checksum, pod, roles
from delayq_operator.desired.child import child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.contract.processes import Scanner, Worker
    from delayq.kube.objects import Object

    from delayq_operator.desired.checksum import Inputs
    from delayq_operator.desired.facts import Facts, Setting
    from delayq_operator.desired.pod import Role

REVISIONS_KEPT: Final = 2  # for inspection only: users roll back the DelayQueue


def scanner(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Return the Deployment of scanners: leaders and standbys."""
    return _deployment(
        queue,
        setting,
        facts,
        role=roles.scanner(queue, setting),
        own=checksum.of_scanner(queue, facts),
        surge=1,  # with maxUnavailable 0: there is always a candidate for leadership
        section=queue.spec.scanner,
        replicas=queue.spec.scanner.replicas,
    )


def worker(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Return the Deployment of workers, without spec.replicas: the scaler writes that with its own field manager."""
    return _deployment(
        queue,
        setting,
        facts,
        role=roles.worker(queue, setting),
        own=checksum.of_worker(queue, facts.inputs.get("worker", {})),
        # Old workers stop only after new ones are ready: a handler that cannot be imported stops the rollout, and the
        # old workers keep running.
        surge="25%",
        section=queue.spec.worker,
    )


def api(queue: DelayQueue, setting: Setting, facts: Facts) -> Object | None:
    """Return the Deployment of the HTTP API; None without spec.api."""
    if queue.spec.api is None:
        return None
    return _deployment(
        queue,
        setting,
        facts,
        role=roles.api(queue, setting),
        own=checksum.of_api(queue),
        surge="25%",
        section=None,
        replicas=queue.spec.api.replicas,
    )


def _deployment(
    queue: DelayQueue,
    setting: Setting,
    facts: Facts,
    *,
    role: Role,
    own: Inputs,
    surge: int | str,
    section: Scanner | Worker | None,
    **spec: int,
) -> Object:
    name, component = queue.metadata.name, role.component
    revisions = None if section is None else section.revision_history_limit
    given = (None if section is None else section.annotations) or {}
    template = pod.template(name, setting, role)
    inputs = checksum.of_deployment(own, template, component)
    return child(
        names.DEPLOYMENT,
        component,
        queue,
        facts,
        annotations={**given, **checksum.remembered(inputs)},
        spec={
            **spec,
            "revisionHistoryLimit": REVISIONS_KEPT if revisions is None else revisions,
            "selector": {"matchLabels": names.selector(name, component)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}},
            "template": checksum.annotated(template, inputs),
        },
    )
