"""What the fields of answers mean: the descriptions of openapi.json, which generated clients have as comments.

Not here: the fields of bodies and queries, whose models have their own (models.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

FIELDS: Final[Mapping[str, str]] = {
    "attempts": "How many runs the task took.",
    "began": "When the run began.",
    "bytes": "Size of its ID and of what Redis stores for it.",
    "cancelling": "Its run is being cancelled. Absent: it is not.",
    "confirmed": "False: stored, but not confirmed in time by what spec.durability asks. Absent: it was.",
    "contentType": "Type of payloadBase64.",
    "count": "Number of dead letters.",
    "crashes": "Runs that ended with their worker. Absent: none.",
    "cursor": "Pass it as ?cursor= for the next page. Absent: this is the last one.",
    "dead": "Tasks that are dead letters.",
    "deadlineMs": "How long after its due time it may still start, in milliseconds.",
    "detail": "What is wrong, and what was expected.",
    "died": "When it became a dead letter.",
    "dryRun": "True: nothing was changed.",
    "due": "When it is due, by Redis' clock.",
    "dueWithin": "Tasks that fall due within a time from now, such as 5m.",
    "error": "The last error.",
    "errors": "Each problem of the request.",
    "expires": "The last instant in which it may start.",
    "failures": "Runs that ended with an error. Absent: none.",
    "finished": "When it was done.",
    "followUpDue": "Due time of the task that replaces it once its run has ended.",
    "followUps": "Follow-ups of tasks in flight or retrying: counted, cancelled or rescheduled.",
    "from": "Start of the span.",
    "group": "The group, for redrive and purge.",
    "headers": "Texts that travel with the task.",
    "id": "The ID as it is stored, KIND:ID for a task with a kind.",
    "inFlight": "Tasks that run now.",
    "items": "What was found.",
    "kind": "Its kind. Absent: it has none.",
    "lastDied": "When the last of them became a dead letter.",
    "lastRun": "The last run. Absent: there was none.",
    "lateMs": "How long after its due time the last run began, in milliseconds.",
    "leaseExpires": "When its worker loses it, unless the worker extends the lease.",
    "message": "What was expected there, and what came.",
    "missed": "Occurrences that could not start in time.",
    "name": "Its name.",
    "next": "When the next occurrences are due.",
    "nextDue": "The first due time after now. Absent: there is none.",
    "now": "Time of the answer, by Redis' clock.",
    "oldestDue": "The earliest due time of a task that waits, past or future. Absent: no task waits.",
    "outcome": "What the request did.",
    "overdue": "Tasks that are due and have not started.",
    "owner": "Who may change the schedule: Kubernetes, a file, a client or an App.",
    "parked": "Tasks whose kind or version no worker has.",
    "path": "Where in the request: a field or a parameter.",
    "payload": "The payload, if it is JSON. Needs read-payloads.",
    "payloadBase64": "The payload, if it is not JSON. Needs read-payloads.",
    "queue": "Name of the queue.",
    "reason": "Why it is a dead letter.",
    "refused": "Number of tasks that were not stored.",
    "requestId": "ID of the request, also in X-Request-Id and in the log.",
    "results": "A result for each task, in the order of the batch.",
    "retrying": "Tasks that wait after a failed run.",
    "scheduled": "The due time that was asked for before the first run.",
    "schemas": "JSON Schemas of its arguments: one, unless releases differ. Empty: not known.",
    "schedulesCountedUntil": "Schedules whose occurrences are counted only until an instant, by name.",
    "since": "When a command suspended the queue.",
    "skipped": "Occurrences that did not start because another one ran.",
    "spans": "The spans of the time to come, in order.",
    "spreadMs": "Over how long the redriven tasks fall due, in milliseconds.",
    "state": "State of the task.",
    "status": "The HTTP status.",
    "stored": "Number of tasks that are stored.",
    "suspect": "Due tasks whose lease expired. They are in due, too.",
    "suspended": "True: no task starts.",
    "suspendedBy": "What suspends the queue: the document, a command, or both.",
    "tags": "Its tags.",
    "tasks": "Number of tasks.",
    "title": "The type of error in words.",
    "to": "End of the span.",
    "tooFar": "Tasks left alone: the new due time is further away than limits.maxDelaySeconds.",
    "type": "Type of the error: urn:delayq: and a word.",
    "version": "Version of its kind.",
    "when": "When it recurs: a cron expression, or an interval.",
}
OF_ONE: Final[Mapping[str, str]] = {
    "Bulk.dead": "Dead letters, which were left alone.",
    "Bulk.inFlight": "Tasks in flight, which were left alone.",
    "Bulk.tasks": "Tasks that waited: counted, cancelled or rescheduled.",
    "Changed.due": "The new due time.",
    "Group.error": "The error that they share.",
    "Kind.kind": "Its name.",
    "Letters.tasks": "Dead letters that were scheduled again or deleted.",
    "Queue.bytes": "Size of the IDs and of what Redis stores, of all tasks.",
    "Queue.due": "Tasks that are due and have not started.",
    "Queue.lateMs": "How long the oldest due task has waited, in milliseconds; 0 without one.",
    "Queue.reason": "The reason that the command gave.",
    "Queue.scheduled": "Tasks that are not due, and had no run.",
    "Schedule.kind": "Kind of its tasks. Absent: they have none.",
    "Schedule.suspended": "True: it creates no occurrences.",
    "Stored.due": "The due time that is stored; of a kept task its own.",
    "Suspension.reason": "The reason that the command gave.",
}
"""Of a field that means something else in one schema."""


def described(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return schemas of answers by name, whose fields have descriptions, except references to other schemas."""
    return {name: _described(schema, name) for name, schema in schemas.items()}


def _described(schema: Schema, name: str) -> Schema:
    if "items" in schema:
        return {**schema, "items": _described(schema["items"], name)}
    if "properties" not in schema:
        return schema
    fields = {
        field: each if "$ref" in each else {"description": _meaning(name, field), **_described(each, name)}
        for field, each in schema["properties"].items()
    }
    return {**schema, "properties": fields}


def _meaning(schema: str, field: str) -> str:
    return OF_ONE.get(f"{schema}.{field}") or FIELDS[field]
