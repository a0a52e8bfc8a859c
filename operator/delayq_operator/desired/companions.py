"""What stands beside the pods of a queue: ServiceAccount, Role, the Service of their metrics, PodDisruptionBudgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.desired.child import child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object

    from delayq_operator.base.names import Component
    from delayq_operator.desired.facts import Facts


def service_account(queue: DelayQueue, facts: Facts) -> Object:
    """Return an identity: pods do not get the rights of the account `default`.

    Only scanners that watch schedules have its token.
    """
    return child(
        names.SERVICE_ACCOUNT,
        queue,
        facts,
        name=names.pods(queue.metadata.name),
        component="pods",
        automountServiceAccountToken=False,
    )


def scanner_role(queue: DelayQueue, facts: Facts) -> Object | None:
    """Return what a scanner may do: read DelaySchedules, write their status, post events about them."""
    if not facts.schedules or names.ROLE.kind not in facts.kinds:
        return None
    group = [names.DELAY_SCHEDULE.group]
    plural = names.DELAY_SCHEDULE.plural
    return child(
        names.ROLE,
        queue,
        facts,
        name=names.scanner(queue.metadata.name),
        component="scanner",
        rules=[
            {"apiGroups": group, "resources": [plural], "verbs": ["get", "list", "watch"]},
            {"apiGroups": group, "resources": [f"{plural}/status"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        ],
    )


def scanner_role_binding(queue: DelayQueue, facts: Facts, scanner: Object) -> Object | None:
    """Bind the Role to the ServiceAccount of the scanners, which their template may name. `scanner`: the Deployment."""
    if not facts.role or names.ROLE_BINDING.kind not in facts.kinds:
        return None
    account = scanner["spec"]["template"]["spec"].get("serviceAccountName", "default")
    name = names.scanner(queue.metadata.name)
    return child(
        names.ROLE_BINDING,
        queue,
        facts,
        name=name,
        component="scanner",
        roleRef={"apiGroup": names.ROLE.group, "kind": names.ROLE.kind, "name": name},
        subjects=[{"kind": names.SERVICE_ACCOUNT.kind, "name": account, "namespace": facts.namespace}],
    )


def metrics_service(queue: DelayQueue, facts: Facts) -> Object:
    """Return a headless Service: one DNS record for each pod, also while it is not ready and its metrics show why."""
    name = queue.metadata.name
    port = {"name": names.METRICS_PORT_NAME, "port": names.METRICS_PORT, "protocol": "TCP"}
    return child(
        names.SERVICE,
        queue,
        facts,
        name=names.metrics_service(name),
        component="metrics",
        spec={
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.QUEUE_LABEL: names.label_value(name)},
            "ports": [{**port, "targetPort": names.METRICS_PORT_NAME}],
        },
    )


def disruption_budget(queue: DelayQueue, facts: Facts, component: Component) -> Object | None:
    """Return how many scanners, or workers, node drains may evict at once: a standby and some workers keep running."""
    budget = queue.spec.pod_disruption_budget
    if not budget.enabled:
        return None
    bound = {"maxUnavailable": budget.max_unavailable or 1}
    if budget.min_available is not None:
        bound = {"minAvailable": budget.min_available}
    return child(
        names.DISRUPTION_BUDGET,
        queue,
        facts,
        name=names.deployment(queue.metadata.name, component),
        component=component,
        spec={
            **bound,
            "selector": {"matchLabels": names.selector(queue.metadata.name, component)},
            # While Redis is down no pod is ready, and an eviction does no harm: do not block drains.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )
