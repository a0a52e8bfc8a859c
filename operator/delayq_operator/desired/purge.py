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

TRIES: Final = 1000
# The kubelet's pauses between tries grow to five minutes, so this is more than three days of an unreachable Redis. The
# Job has no time to live: that it has succeeded is what lets the DelayQueue go.

_SERVER_ONLY: Final = ("livenessProbe", "ports", "readinessProbe", "startupProbe")


def purge_job(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Make the Job. Its pod is the reaper's, whose template is one for pods that come to an end."""
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
    # OnFailure: one pod that tries again, not a failed pod for each try.
    restarted = {"restartPolicy": "OnFailure"}
    return replace(reaper.role(queue, setting), arguments=("erase",), probes={}, pod=restarted)


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
    kept = {field: value for field, value in container.items() if field not in _SERVER_ONLY}
    return {**kept, "name": "purge"}
