"""The reaper CronJob: one pass every five minutes, never two at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.contract.processes import EVERY_FIVE_MINUTES

from delayq_operator.base import names
from delayq_operator.desired import code, pod, probes, reads
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts, Setting
    from delayq_operator.desired.pod import Role

EVERY_MINUTE: Final = "* * * * *"
DEADLINE_SECONDS: Final = 300
# A run takes at most 180 s and an image pull. A run that hangs would block all others: runs do not overlap.


def cron_job(queue: DelayQueue, setting: Setting, facts: Facts) -> Object:
    """Return the CronJob."""
    name, spec = queue.metadata.name, queue.spec.reaper
    cron: Object = {
        "schedule": _schedule(queue),
        "concurrencyPolicy": "Forbid",
        "suspend": spec.suspend,
        "startingDeadlineSeconds": spec.starting_deadline_seconds,
        "successfulJobsHistoryLimit": spec.successful_jobs_history_limit,
        "failedJobsHistoryLimit": spec.failed_jobs_history_limit,
        "jobTemplate": {
            "metadata": {"labels": names.labels(name, "reaper")},
            "spec": {
                "activeDeadlineSeconds": DEADLINE_SECONDS,
                "backoffLimit": 0,  # the next run tries again
                "template": pod.template(name, setting, role(queue, setting)),
            },
        },
    }
    if spec.time_zone is not None:
        cron["timeZone"] = spec.time_zone
    return child(names.CRON_JOB, queue, facts, name=names.reaper(name), component="reaper", spec=cron)


def _schedule(queue: DelayQueue) -> str:
    """Return the schedule: every minute without scanners, because then only the reaper recovers expired leases."""
    schedule = queue.spec.reaper.schedule
    return EVERY_MINUTE if schedule == EVERY_FIVE_MINUTES and not queue.spec.scanner.replicas else schedule


def role(queue: DelayQueue, setting: Setting) -> Role:
    """Return the role of reaper pods."""
    return code.role(
        queue,
        setting,
        "reaper",
        mounted=reads.by_reaper(queue.spec),
        template=queue.spec.reaper.template,
        probes=probes.of_run(queue),
        pod={"restartPolicy": "Never"},
    )
