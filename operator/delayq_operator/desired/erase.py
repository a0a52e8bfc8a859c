"""The Job that erases a queue's keys before its DelayQueue goes. Not in desired(): only deletion asks for it.

It needs nothing that goes with the DelayQueue, and does not go with it either: `kubectl delete --cascade=foreground`
deletes all children first, and would the Job too. deletion.py deletes it when it is done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.desired import config, mounts, pod, reads, reaper
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts, Setting
    from delayq_operator.desired.pod import Role

TRIES: Final = 100
# Each try waits a minute for Redis, and the pauses between them grow to six minutes: eleven hours, a night and more,
# until manual work is needed. Each leaves a pod that failed, whose last words say why; the Job counts them.

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def erase_job(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Make the Job. Its pod is the reaper's, whose template is one for pods that come to an end.

    It has no time to live: that it has succeeded is what lets the DelayQueue go.
    """
    name = queue.metadata.name
    template = pod.template(name, setting, _role(queue, setting))
    job = child(
        names.JOB,
        queue,
        facts,
        name=names.erase(name),
        component="erase",
        annotations={names.OWNER_UID: facts.uid},
        spec={"backoffLimit": TRIES, "template": _on_its_own(template, queue)},
    )
    del job["metadata"]["ownerReferences"]
    return job


def _role(queue: DelayQueue, setting: Setting) -> Role:
    return replace(
        reaper.role(queue, setting),
        image=setting.worker_image,  # no code of the user's, and no Secret but Redis', can keep a DelayQueue from going
        resources=pod.SMALL,
        mounted=reads.by_erase(queue.spec),
        under={},
        process="erase",
        probes={},
    )


def _on_its_own(template: Object, queue: DelayQueue) -> Object:
    """Turn the reaper's pod into one that carries the document itself, and needs no ServiceAccount of ours."""
    name, metadata, spec = queue.metadata.name, template["metadata"], dict(template["spec"])
    if spec["serviceAccountName"] == names.pods(name):
        del spec["serviceAccountName"]
        spec["automountServiceAccountToken"] = (
            False  # it would be that of `default`, for containers of the user's
        )
    return {
        **template,
        "metadata": {
            **metadata,
            "labels": {**metadata["labels"], **names.labels(name, "erase")},
            "annotations": {**metadata.get("annotations", {}), names.DOCUMENT: config.text(queue)},
        },
        "spec": {
            **spec,
            "containers": [_container(each) for each in spec["containers"]],
            "volumes": [mounts.with_document(each, names.DOCUMENT) for each in spec["volumes"]],
        },
    }


def _container(container: Object) -> Object:
    if container["name"] != "reaper":
        return container
    kept = {field: value for field, value in container.items() if field not in _PROBES}
    return {**kept, "name": "erase"}
