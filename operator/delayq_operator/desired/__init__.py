"""The desired children of a DelayQueue, each a pure function of document and facts.

Not here: live objects (children.py), drift (drift.py), the number of workers (scaling.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.contract import SpecError

from delayq_operator.desired import api, companions, config, deployments, jobs, monitoring, network
from delayq_operator.desired.jobs import erase_job

if TYPE_CHECKING:
    from delayq.contract import DelayQueue, Problem
    from delayq.kube.objects import Object

    from delayq_operator.desired.facts import Facts, Setting

__all__ = ["desired", "erase_job"]


def desired(queue: DelayQueue, setting: Setting, facts: Facts) -> list[Object]:
    """Return the desired objects in the order to apply them: what pods need comes before the pods.

    SpecError lists everything in the pod templates that cannot be merged.
    """
    with_pods = _with_pods(queue, setting, facts)
    wanted = [
        companions.service_account(queue, facts),
        companions.scanner_account(queue, facts),
        companions.scanner_binding(queue, setting, facts),
        config.config_map(queue, facts),
        api.issuer_keys(queue, facts),
        companions.metrics_service(queue, facts),
        api.service(queue, facts),
        network.policy(queue, setting, facts),
        companions.disruption_budget(queue, facts, "scanner"),
        companions.disruption_budget(queue, facts, "worker"),
        None if queue.spec.api is None else companions.disruption_budget(queue, facts, "api"),
        monitoring.pod_monitor(queue, facts),
        monitoring.prometheus_rule(queue, facts),
        *with_pods,
    ]
    return [each for each in wanted if each is not None]


def _with_pods(queue: DelayQueue, setting: Setting, facts: Facts) -> list[Object | None]:
    """Return scanners, workers, the API and reapers."""
    made: list[Object | None] = []
    problems: list[Problem] = []
    for make in (deployments.scanner, deployments.worker, deployments.api, jobs.reaper):
        try:
            made.append(make(queue, setting, facts))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(tuple(dict.fromkeys(problems)))  # scanners take a part of the workers' template
    return made
