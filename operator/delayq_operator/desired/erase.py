"""The Job that erases a queue's keys before its DelayQueue is deleted. Not in desired(): only deletion creates it.

It depends on no child and is not owned: `kubectl delete --cascade=foreground` deletes all owned objects first.
deletion.py deletes it when it is done.
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
# Each try waits a minute for Redis, and the backoff grows to six minutes: the Job retries for about eleven hours.
# Each leaves a failed pod, whose last message gives the reason; the Job counts them.

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def erase_job(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Return the Job. Its pod uses the reaper's template, which is for pods that terminate.

    It has no ttlSecondsAfterFinished: the operator removes the finalizer when it sees the success.
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
        image=setting.worker_image,  # only a Secret of Redis can block the deletion, not user code
        resources=pod.SMALL,
        mounted=reads.by_erase(queue.spec),
        under={},
        process="erase",
        options=("--yes",),
        probes={},
    )


def _on_its_own(template: Object, queue: DelayQueue) -> Object:
    """Change the reaper's pod: the document is in an annotation, and no ServiceAccount of the operator is needed."""
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
