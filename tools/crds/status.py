"""What the CRDs have and no document: status, columns and subresources."""

from __future__ import annotations

from typing import Final

from tools.crds.parts import Part, column, conditions, mapping, number, of, text, time

QUEUE: Final = Part(
    status=mapping(
        "What the operator last saw. Numbers here are rounded and slow; the metrics are exact and live.",
        observedGeneration=number("Generation of the spec that this status is about.", bits=64),
        replicas=number("Worker pods there are."),
        readyReplicas=number("Worker pods that are ready."),
        desiredReplicas=number("Worker pods that there should be."),
        selector=text("Label selector of the worker pods, for the scale subresource.", 1024),
        scanner=mapping(
            "The scanners.",
            replicas=number("Scanner pods there are."),
            readyReplicas=number("Scanner pods that are ready."),
        ),
        api=mapping(
            "The pods of the HTTP API. Absent: spec.api is.",
            replicas=number("API pods there are."),
            readyReplicas=number("API pods that are ready."),
        ),
        reaper=mapping(
            "The reaper's CronJob.",
            lastScheduleTime=time("When a run last started."),
            lastSuccessfulTime=time("When a run last ended well."),
        ),
        backlog=mapping(
            "The tasks, as last measured.",
            due=number("Tasks that are due and not claimed.", bits=64),
            scheduled=number("Tasks that fall due later and have not failed.", bits=64),
            inFlight=number("Tasks that workers hold.", bits=64),
            retrying=number("Tasks that are scheduled for another attempt.", bits=64),
            parked=number(
                "Tasks whose kind or version no worker knew; they wait for a worker that does. Absent without any.",
                bits=64,
            ),
            dead=number("Dead letters.", bits=64),
            dueWithinLeadTime=number(
                "Tasks that fall due before a new worker could claim one. Absent: the operator does not scale this "
                "queue.",
                bits=64,
            ),
            oldestDueTime=time("When the most overdue task fell due."),
            nextDueTime=time("When the next task falls due."),
            observedTime=time("When this was measured."),
        ),
        scaling=mapping(
            "What the autoscaler last decided, and why.",
            lastScaleTime=time("When the number of workers last changed."),
            recommendedReplicas=number("Workers asked for by the last decision."),
            message=text("The decision as a sentence with its inputs.", 1024),
            limitedBy=text("What kept the decision from what demand asked for. Absent: nothing.", 253),
            leadTimeSeconds=number(
                "From creating a single worker to its first claim, as learnt, with a margin, rounded up."
            ),
            handlerMilliseconds=number("Mean time of a handler that was learnt, rounded up.", bits=64),
            wakeTime=time(
                "With no worker: when the first will be started at the latest. Absent: nothing is known to come."
            ),
        ),
        resharding=mapping(
            "How far tasks have moved to another number of shards. Absent: they are where spec.shards says.",
            fromShards=number("Shards the tasks were in."),
            toShards=number("Shards they will be in."),
            checkedTasks=number("Tasks whose place was looked at.", bits=64),
            tasks=number("Tasks to look at. Absent: not known.", bits=64),
            movedTasks=number("Tasks that were moved.", bits=64),
            waitingTasks=number(
                "Tasks that stay where they are until they have run: due within a minute, or in flight.",
                bits=64,
            ),
            message=text("What keeps it from going on. Absent: nothing.", 1024),
        ),
        erase=mapping(
            "How far the tasks in Redis are erased, once the DelayQueue is deleted with deletionPolicy Delete.",
            erasedShards=number("Shards that nothing is left of."),
            shards=number("Shards there are."),
            message=text("What keeps it from going on. Absent: nothing.", 1024),
        ),
        conditions=conditions("queue, one entry per type; Ready sums the others up.", 32),
    ),
    subresources={
        "scale": {
            "specReplicasPath": ".spec.worker.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    },
    columns=[
        column("Ready", of("Ready"), "Whether the queue is served as its spec asks."),
        column("Due", ".status.backlog.due", "Tasks that are due and not claimed.", "integer"),
        column(
            "Scheduled",
            ".status.backlog.scheduled",
            "Tasks that fall due later and have not failed.",
            "integer",
        ),
        column("In-flight", ".status.backlog.inFlight", "Tasks that workers hold.", "integer"),
        column(
            "Retrying",
            ".status.backlog.retrying",
            "Tasks that are scheduled for another attempt.",
            "integer",
            wide=True,
        ),
        column("Parked", ".status.backlog.parked", "Tasks whose kind or version no worker has.", "integer"),
        column("Dead", ".status.backlog.dead", "Dead letters.", "integer"),
        column("Workers", ".status.readyReplicas", "Worker pods that are ready.", "integer"),
        column("Desired", ".status.desiredReplicas", "Worker pods that there should be.", "integer"),
        column("Next-Due", ".status.backlog.nextDueTime", "When the next task falls due."),
        column("Age", ".metadata.creationTimestamp", "Time since the DelayQueue was created.", "date"),
        column("Reason", of("Ready", "reason"), "Why the queue is ready or not.", wide=True),
        column(
            "Degraded",
            of("Degraded"),
            "Whether something needs a person; the condition says what.",
            wide=True,
        ),
        column(
            "Oldest-Due",
            ".status.backlog.oldestDueTime",
            "How long the most overdue task has been due.",
            "date",
            wide=True,
        ),
        column(
            "Min",
            ".spec.autoscaling.minReplicas",
            "Fewest workers that autoscaling leaves.",
            "integer",
            wide=True,
        ),
        column(
            "Max",
            ".spec.autoscaling.maxReplicas",
            "Most workers that autoscaling asks for.",
            "integer",
            wide=True,
        ),
        column(
            "Redis", of("BackendAvailable"), "Whether the scanners reach Redis and it serves them.", wide=True
        ),
        column(
            "Suspended",
            of("Suspended"),
            "Whether the spec or delayq suspend stops the queue: no task is claimed.",
            wide=True,
        ),
    ],
)

SCHEDULE: Final = Part(
    status=mapping(
        "What became of the schedule. The scanner of its queue writes it; the operator, if no scanner serves "
        "the queue.",
        observedGeneration=number("Generation of the spec that this status is about.", bits=64),
        nextTimes={
            "description": "When the next occurrences are due, the nearest first; empty while it is suspended or "
            "has no further ones.",
            "type": "array",
            "maxItems": 5,
            "x-kubernetes-list-type": "atomic",
            "items": time("One instant."),
        },
        lastRun=mapping(
            "The occurrence that a worker started last. A parked one does not count; one whose arguments did not fit "
            "does.",
            nominalTime=time("The time that the schedule names."),
            startTime=time("When its task started."),
            latenessMilliseconds=number("How long after its due time it started.", bits=64),
        ),
        runs=mapping(
            "Occurrences that did not run, by reason, since the schedule exists.",
            missed=number(
                "Those that could not start in time, see spec.misfire, also because no worker knew their kind.",
                bits=64,
            ),
            skipped=number(
                "Those that did not start because another one ran, see spec.concurrencyPolicy.", bits=64
            ),
        ),
        conditions=conditions("schedule, one entry per type.", 8),
    ),
    columns=[
        column("Queue", ".spec.queueRef.name", "The DelayQueue that the tasks go to."),
        column("Cron", ".spec.cron", "Times of day and days, if it is a cron expression."),
        column(
            "Every",
            ".spec.everySeconds",
            "Seconds between two occurrences, if they have a fixed distance.",
            "integer",
            wide=True,
        ),
        column("Time-Zone", ".spec.timeZone", "Time zone of the cron expression.", wide=True),
        column("Suspend", ".spec.suspend", "Whether there are no occurrences for now.", "boolean"),
        column("Ready", of("Ready"), "Whether occurrences are created as the spec asks."),
        column("Next", ".status.nextTimes[0]", "When the next occurrence is due."),
        column("Last", ".status.lastRun.startTime", "Time since the last occurrence started.", "date"),
        column(
            "Lateness-ms",
            ".status.lastRun.latenessMilliseconds",
            "How long after its due time the last occurrence started.",
            "integer",
        ),
        column(
            "Missed",
            ".status.runs.missed",
            "Occurrences that could not start in time.",
            "integer",
            wide=True,
        ),
        column("Reason", of("Ready", "reason"), "Why it is ready or not."),
        column("Age", ".metadata.creationTimestamp", "Time since the DelaySchedule was created.", "date"),
    ],
)
