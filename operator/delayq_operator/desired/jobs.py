"""The reaper CronJob, and the Job that erases a queue's keys before its DelayQueue is deleted."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.desired import config, pod, roles
from delayq_operator.desired.child import child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object

    from delayq_operator.desired.facts import Facts, Setting

EVERY_MINUTE: Final = "* * * * *"
STARTING_SECONDS: Final = 30
DEADLINE_SECONDS: Final = 300
# A run takes at most 180 s and an image pull. A run that hangs would block all others: runs do not overlap.

TRIES: Final = 100
# Each try waits a minute for Redis, and the backoff grows to six minutes: the Job retries for about eleven hours.
# Each leaves a failed pod, whose last message gives the reason; the Job counts them.

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def reaper(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Return the CronJob: one pass every five minutes, never two at once."""
    name, spec = queue.metadata.name, queue.spec.reaper
    cron: Object = {
        "schedule": _schedule(queue, names.Key(facts.namespace, name)),
        "concurrencyPolicy": "Forbid",
        "suspend": spec.suspend,
        "startingDeadlineSeconds": STARTING_SECONDS,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {
            "metadata": {"labels": names.labels(name, "reaper")},
            "spec": {
                "activeDeadlineSeconds": DEADLINE_SECONDS,
                "backoffLimit": 0,  # the next run tries again
                "template": pod.template(name, setting, roles.reaper(queue, setting)),
            },
        },
    }
    return child(names.CRON_JOB, "reaper", queue, facts, annotations=spec.annotations, spec=cron)


def _schedule(queue: DelayQueue, key: names.Key) -> str:
    """Return when runs start."""
    spec = queue.spec
    if spec.reaper.schedule is not None:
        return spec.reaper.schedule
    if not spec.scanner.replicas:
        return EVERY_MINUTE  # only the reaper recovers expired leases
    # The reapers of a cluster would start in the same second: twenty pods of idle queues filled a node.
    return f"{zlib.crc32(str(key).encode()) % 5}-59/5 * * * *"


def erase_job(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Return the Job that erases the tasks. Not in desired(): only deletion creates it.

    It depends on no child and is not owned: `kubectl delete --cascade=foreground` deletes all owned objects first.
    It has no ttlSecondsAfterFinished: deletion.py deletes it when it has seen the success.
    """
    name = queue.metadata.name
    template = pod.template(name, setting, roles.erase(queue, setting))
    job = child(
        names.JOB,
        "erase",
        queue,
        facts,
        annotations={names.OWNER_UID: facts.uid},
        spec={"backoffLimit": TRIES, "template": _on_its_own(template, config.stamped(queue, facts))},
    )
    del job["metadata"]["ownerReferences"]
    return job


def _on_its_own(template: Object, queue: DelayQueue) -> Object:
    """Change the reaper's pod: the document is in an annotation, and no ServiceAccount of the operator is needed."""
    name, metadata, spec = queue.metadata.name, template["metadata"], dict(template["spec"])
    if spec["serviceAccountName"] == names.pods(name):
        del spec["serviceAccountName"]
        # The token would be that of `default`, for containers of the user's.
        spec["automountServiceAccountToken"] = False
    return {
        **template,
        "metadata": {
            **metadata,
            "labels": {**metadata["labels"], **names.labels(name, "erase")},
            "annotations": {**metadata.get("annotations", {}), names.DOCUMENT: config.text(queue)},
        },
        "spec": {**spec, "containers": [_container(each) for each in spec["containers"]]},
    }


def _container(container: Object) -> Object:
    if container["name"] != "reaper":
        return container
    kept = {field: value for field, value in container.items() if field not in _PROBES}
    return {**kept, "name": "erase"}
