"""The table of all routes: what the server serves, and what openapi.json describes."""

from __future__ import annotations

from typing import Final

from delayq.api import dead_letters, models, queue, tasks
from delayq.api.calls import Route

PREFIX: Final = "/v1alpha1"
BATCH: Final = "scheduleBatch"
STORED: Final = {201: "Stored", 200: "Stored", 202: "Stored"}
_STORING: Final = ("exists", "queue-full", "not-confirmed", "too-large")
_ONE: Final = ("not-found",)
_STATE: Final = ("not-found", "in-flight", "dead-letter")


def _task(method: str, name: str, summary: str, **rest: object) -> tuple[Route, Route]:
    """Return the route with the ID in the path, and the one with ?id=."""
    made = {"method": method, "summary": summary, **rest}
    return (
        Route(path="/tasks/{kind}/{id}", name=name, **made),  # type: ignore[arg-type] # fields of Route
        Route(path="/tasks/{kind}", name=f"{name}ById", **made),  # type: ignore[arg-type] # the same
    )


ROUTES: Final = (
    *_task(
        "PUT",
        "putTask",
        "Schedules a task.",
        verb="schedule",
        run=tasks.put,
        query=models.NamedExists,
        body=models.Task,
        answers=STORED,
        errors=_STORING,
    ),
    *_task(
        "GET",
        "getTask",
        "Returns a task; its payload and headers only with the right read-payloads.",
        verb="read",
        run=tasks.get,
        query=models.Named,
        answers={200: "StoredTask"},
        errors=_ONE,
    ),
    *_task(
        "PATCH",
        "rescheduleTask",
        "Changes the due time of a task that waits.",
        verb="reschedule",
        run=tasks.reschedule,
        query=models.Named,
        body=models.When,
        answers={200: "Changed"},
        errors=_STATE,
    ),
    *_task(
        "DELETE",
        "cancelTask",
        "Cancels a task; with running=true, also the run of a task in flight.",
        verb="cancel",
        run=tasks.cancel,
        query=models.NamedRunning,
        answers={200: "Changed", 202: "Changed"},
        errors=_STATE,
    ),
    Route(
        method="POST",
        path="/tasks:batch",
        name=BATCH,
        summary="Schedules up to 5,000 tasks, once all of them are checked.",
        verb="schedule",
        run=tasks.batch,
        query=models.Exists,
        body=models.Batch,
        answers={200: "BatchResult"},
        errors=("busy", "too-large"),
    ),
    Route(
        method="GET",
        path="/tasks:count",
        name="countTasks",
        summary="Counts tasks by tag, kind and due time.",
        verb="read",
        run=tasks.count,
        query=models.Some,
        answers={200: "Bulk"},
    ),
    Route(
        method="POST",
        path="/tasks:cancel",
        name="cancelTasks",
        summary="Cancels tasks by tag, kind and due time.",
        verb="cancel",
        run=tasks.cancel_many,
        long=True,
        body=models.Cancel,
        answers={200: "Bulk"},
    ),
    Route(
        method="POST",
        path="/tasks:reschedule",
        name="rescheduleTasks",
        summary="Changes the due times of tasks by tag, kind and due time.",
        verb="reschedule",
        run=tasks.reschedule_many,
        long=True,
        body=models.Reschedule,
        answers={200: "Bulk"},
    ),
    Route(
        method="GET",
        path="/tasks",
        name="listTasks",
        summary="Lists the tasks in a state.",
        verb="read",
        run=tasks.listed,
        query=models.Listed,
        answers={200: "Rows"},
    ),
    Route(
        method="POST",
        path="/tasks",
        name="createTask",
        summary="Schedules a task, with a generated ID unless the body has one.",
        verb="schedule",
        run=tasks.post,
        query=models.Exists,
        body=models.NamedTask,
        answers=STORED,
        errors=_STORING,
    ),
    Route(
        method="GET",
        path="/deadletters",
        name="listDeadLetters",
        summary="Lists dead letters, the oldest first.",
        verb="dead-letters",
        run=dead_letters.listed,
        query=models.Letters,
        answers={200: "Rows"},
    ),
    Route(
        method="GET",
        path="/deadletters:groups",
        name="groupDeadLetters",
        summary="Groups dead letters by kind and error, the largest group first.",
        verb="dead-letters",
        run=dead_letters.groups,
        query=models.OfKind,
        answers={200: "Groups"},
    ),
    Route(
        method="POST",
        path="/deadletters:redrive",
        name="redriveDeadLetters",
        summary="Schedules dead letters again, with all their attempts.",
        verb="dead-letters",
        run=dead_letters.redrive,
        long=True,
        body=models.Redrive,
        answers={200: "Letters"},
        errors=_ONE,
    ),
    Route(
        method="POST",
        path="/deadletters:purge",
        name="purgeDeadLetters",
        summary="Deletes dead letters for good.",
        verb="dead-letters",
        run=dead_letters.purge,
        long=True,
        body=models.Purge,
        answers={200: "Letters"},
        errors=_ONE,
    ),
    Route(
        method="GET",
        path="/schedules",
        name="listSchedules",
        summary="Lists the recurring schedules.",
        verb="read",
        run=queue.schedules,
        answers={200: "Schedules"},
    ),
    Route(
        method="POST",
        path="/schedules/{name}:run",
        name="runSchedule",
        summary="Creates an occurrence that is due now.",
        verb="run-schedules",
        run=queue.run_schedule,
        answers={201: "Occurrence"},
        errors=("not-found", "queue-full", "schedule-refused"),
    ),
    Route(
        method="GET",
        path="/schedules/{name}",
        name="getSchedule",
        summary="Returns a recurring schedule and its next times.",
        verb="read",
        run=queue.schedule,
        query=models.Times,
        answers={200: "Schedule"},
        errors=_ONE,
    ),
    Route(
        method="GET",
        path="/kinds",
        name="listKinds",
        summary="Lists the kinds that workers take, with JSON Schemas of their arguments.",
        verb="read",
        run=queue.kinds,
        answers={200: "Kinds"},
    ),
    Route(
        method="GET",
        path="/queue",
        name="getQueue",
        summary="Counts tasks by state, and says how late the queue is.",
        verb="read",
        run=queue.counts,
        answers={200: "Queue"},
    ),
    Route(
        method="GET",
        path="/forecast",
        name="getForecast",
        summary="Says when tasks fall due.",
        verb="read",
        run=queue.forecast,
        query=models.Within,
        answers={200: "Forecast"},
    ),
    Route(
        method="POST",
        path="/queue:suspend",
        name="suspendQueue",
        summary="Stops the tasks of the queue: running tasks finish, scheduled ones wait.",
        verb="suspend",
        run=queue.suspend,
        body=models.Suspend,
        answers={200: "Suspension"},
    ),
    Route(
        method="POST",
        path="/queue:resume",
        name="resumeQueue",
        summary="Starts the tasks of the queue again.",
        verb="suspend",
        run=queue.resume,
        answers={200: "Suspension"},
    ),
)
"""The router tries them in this order: the most used first, a literal path before a parameter in its place."""
