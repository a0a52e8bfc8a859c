"""The Job that erases a queue's keys before its DelayQueue goes. Not in desired(): only deletion asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delayq_operator import names
from delayq_operator.desired import pod, reaper
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts, Setting
    from delayq_operator.desired.role import Role

TRIES: Final = 100
# Each try waits a minute for Redis, and the pauses between them grow to six minutes: eleven hours, a night and more,
# until somebody has to look. Each leaves a pod that failed, whose last words say why; the Job counts them.

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def purge_job(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Make the Job. Its pod is the reaper's, whose template is one for pods that come to an end.

    It has no time to live: that it has succeeded is what lets the DelayQueue go.
    """
    name = queue.metadata.name
    template = pod.template(name, setting, _role(queue, setting))
    return child(
        names.JOB,
        queue,
        facts,
        name=names.purge(name),
        component="purge",
        spec={"backoffLimit": TRIES, "template": _renamed(template, name)},
    )


def _role(queue: DelayQueue, setting: Setting) -> Role:
    return replace(reaper.role(queue, setting), arguments=("erase", *pod.LISTEN), probes={})


def _renamed(template: Object, name: str) -> Object:
    labels = {**template["metadata"]["labels"], **names.labels(name, "purge")}
    containers = [_container(each) for each in template["spec"]["containers"]]
    return {
        **template,
        "metadata": {**template["metadata"], "labels": labels},
        "spec": {**template["spec"], "containers": containers},
    }


def _container(container: Object) -> Object:
    if container["name"] != "reaper":
        return container
    kept = {field: value for field, value in container.items() if field not in _PROBES}
    return {**kept, "name": "purge"}
