"""The environment of a command: the worker's without its credentials, the document's, and the task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.protocol.envelope import Task

OWN_PREFIX = "DELAYQ_"
CREDENTIALS = frozenset({"REDISCLI_AUTH", "REDIS_PASSWORD", "REDIS_URL", "REDIS_USERNAME"})


def base(worker: Mapping[str, str], document: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for all tasks. A command that needs Redis gets its credentials from the document's env."""
    inherited = {name: value for name, value in worker.items() if not _withheld(name)}
    return inherited | dict(document)


def of_task(task: Task) -> dict[str, str]:
    """Return the task's metadata. JSON is ASCII, so that every header is valid in the environment."""
    return {
        "DELAYQ_TASK_ID": task.id,
        "DELAYQ_QUEUE": task.queue,
        "DELAYQ_ATTEMPT": str(task.attempt),
        "DELAYQ_TOKEN": str(task.token),
        "DELAYQ_DUE_MS": str(task.due_ms),
        "DELAYQ_SCHEDULED_MS": str(task.scheduled_ms),
        "DELAYQ_CONTENT_TYPE": task.content_type,
        "DELAYQ_HEADERS": json.dumps(dict(task.headers)),
    } | ({"DELAYQ_KIND": task.kind, "DELAYQ_KIND_VERSION": str(task.kind_version)} if task.kind else {})


def _withheld(name: str) -> bool:
    return name.startswith(OWN_PREFIX) or name in CREDENTIALS
