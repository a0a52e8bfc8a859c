"""What stands beside the pods of a queue: ServiceAccounts, the Service of their metrics, PodDisruptionBudgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.desired.child import child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object

    from delayq_operator.base.names import Component
    from delayq_operator.desired.facts import Facts, Setting


def service_account(queue: DelayQueue, facts: Facts) -> Object:
    """Return an identity: pods do not get the rights of the account `default`, nor its token."""
    return _account(queue, facts, "pods")


def scanner_account(queue: DelayQueue, facts: Facts) -> Object | None:
    """Return the identity of scanners that watch DelaySchedules."""
    if queue.spec.schedules is None:
        return None
    return _account(queue, facts, "scanner")


def _account(queue: DelayQueue, facts: Facts, component: Component) -> Object:
    return child(names.SERVICE_ACCOUNT, component, queue, facts, automountServiceAccountToken=False)


def scanner_binding(queue: DelayQueue, setting: Setting, facts: Facts) -> Object | None:
    """Let scanners read the DelaySchedules of the namespace, write their status, and post events."""
    if queue.spec.schedules is None:
        return None
    name, group = names.scanner(queue.metadata.name), names.ROLE_BINDING.group
    return child(
        names.ROLE_BINDING,
        "scanner",
        queue,
        facts,
        roleRef={"apiGroup": group, "kind": setting.scanner_role_kind, "name": setting.scanner_role},
        subjects=[{"kind": names.SERVICE_ACCOUNT.kind, "name": name, "namespace": facts.namespace}],
    )


def metrics_service(queue: DelayQueue, facts: Facts) -> Object:
    """Return a headless Service: one DNS record for each pod, also while it is not ready and its metrics show why."""
    port = {"name": names.METRICS_PORT_NAME, "port": names.METRICS_PORT, "protocol": "TCP"}
    return child(
        names.SERVICE,
        "metrics",
        queue,
        facts,
        spec={
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.QUEUE_LABEL: names.label_value(queue.metadata.name)},
            "ports": [{**port, "targetPort": names.METRICS_PORT_NAME}],
        },
    )


def disruption_budget(queue: DelayQueue, facts: Facts, component: Component) -> Object | None:
    """Return how many pods of a component node drains may evict at once: a standby and some workers keep running."""
    budget = queue.spec.pod_disruption_budget
    if not budget.enabled:
        return None
    bound = {"maxUnavailable": budget.max_unavailable or 1}
    if budget.min_available is not None:
        bound = {"minAvailable": budget.min_available}
    return child(
        names.DISRUPTION_BUDGET,
        component,
        queue,
        facts,
        spec={
            **bound,
            "selector": {"matchLabels": names.selector(queue.metadata.name, component)},
            # While Redis is down no pod is ready, and an eviction does no harm: do not block drains.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )
