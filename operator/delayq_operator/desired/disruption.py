"""The PodDisruptionBudgets of scanners and workers: how many a node drain may evict at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.base.names import Component
    from delayq_operator.desired.facts import Facts


def scanner_budget(queue: DelayQueue, facts: Facts) -> Object | None:
    """Keep a standby while another scanner's node is drained."""
    return _budget(queue, facts, name=names.scanner(queue.metadata.name), component="scanner")


def worker_budget(queue: DelayQueue, facts: Facts) -> Object | None:
    """Keep workers running while nodes are drained one after the other."""
    return _budget(queue, facts, name=names.worker(queue.metadata.name), component="worker")


def _budget(queue: DelayQueue, facts: Facts, *, name: str, component: Component) -> Object | None:
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
        name=name,
        component=component,
        spec={
            **bound,
            "selector": {"matchLabels": names.selector(queue.metadata.name, component)},
            # While Redis is down no pod is ready, and an eviction does no harm: do not block drains.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )
