"""The keys of results in JSON and YAML, and what each means. A promise: a key keeps its name and meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS: Final[Mapping[str, str]] = {
    "id": "Id of the task.",
    "outcome": "created, kept, replaced, repeated; cancelled, rescheduled; or why not: in_flight, dead, not_found.",
    "state": "delayed, retry, processing, dlq; or orphan, which the reaper mends.",
    "due": "When the task runs, or runs again.",
    "lease_expires": "While processing: until when its worker has it unless it extends the lease.",
    "died": "When it became a dead letter.",
    "scheduled": "The due time first asked for; of `counts`, tasks that wait for theirs; of `--many`, tasks stored.",
    "token": "The fencing number of the current lease.",
    "content_type": "Type of the payload.",
    "payload": "The payload, when it is JSON.",
    "payload_base64": "The payload otherwise.",
    "headers": "The task's headers.",
    "bytes": "Size of the stored task.",
    "failures": "Runs that failed.",
    "crashes": "Runs whose worker was lost.",
    "reason": "Why it is dead: attempts, crashes, buried.",
    "error": "The last error.",
    "group": "Number of the group, for --group; the largest is 1.",
    "count": "How many tasks.",
    "last_died": "When the latest of the group died.",
    "ids": "The tasks of the group.",
    "seconds": "Over how long the due times are spread.",
    "dry_run": "Whether nothing was changed.",
    "queue": "Name of the queue.",
    "now": "Redis' time.",
    "delayed": "Tasks waiting for their first run.",
    "retry": "Tasks waiting for another run.",
    "processing": "Tasks being handled.",
    "dlq": "Dead letters.",
    "overdue": "Tasks that are due and not claimed.",
    "oldest_overdue_ms": "For how long the most overdue task has been due.",
    "next_due": "The first due time after now.",
    "due_within": "How many tasks fall due within each time from now; overdue ones are not among them.",
    "stats": "Counters since the queue began.",
    "per_second": "How much the counters rose a second since the sample before.",
    "refused": "Lines of `--many` that were not stored: line, message.",
    "file": "The file, as it was named.",
    "valid": "Whether the document can be used.",
    "problems": "What is wrong: path in the document, message.",
    "check": "Which check of the doctor.",
    "level": "ok, warning or failed.",
    "message": "What was found.",
    "hint": "What to do about it.",
}
