"""Errors of the HTTP API as RFC 9457, from the client's exceptions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from delayq.client.taken_kinds import ANYWAY
from delayq.contract.problems import SpecError
from delayq.errors import (
    DelayQError,
    DelayTooLong,
    InvalidTask,
    NoSuchSchedule,
    NotConfirmed,
    PayloadTooLarge,
    QueueFull,
    ScheduleRefused,
    TaskExists,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONTENT_TYPE: Final = "application/problem+json"
TYPES: Final[Mapping[str, int]] = {
    "invalid-request": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "cross-site": 403,
    "not-found": 404,
    "method-not-allowed": 405,
    "timeout": 408,
    "exists": 409,
    "in-flight": 409,
    "dead-letter": 409,
    "schedule-refused": 409,
    "too-large": 413,
    "unsupported-media-type": 415,
    "misdirected": 421,
    "queue-full": 429,
    "header-too-large": 431,
    "refused-by-redis": 500,
    "internal": 500,
    "redis-unavailable": 503,
    "busy": 503,
    "not-confirmed": 503,
}
"""The last word of `type`, and the status."""
RETRY_SECONDS: Final[Mapping[str, int]] = {
    "queue-full": 5,
    "redis-unavailable": 1,
    "busy": 1,
    "not-confirmed": 1,
}
"""Of the header Retry-After."""
KINDS: Final[Mapping[type[DelayQError], str]] = {
    PayloadTooLarge: "too-large",
    InvalidTask: "invalid-request",
    QueueFull: "queue-full",
    NoSuchSchedule: "not-found",
    ScheduleRefused: "schedule-refused",
    NotConfirmed: "not-confirmed",
    Unavailable: "redis-unavailable",
    DelayQError: "refused-by-redis",
}
"""The word of an exception of the client, the most special ones first."""
FIELDS: Final[Mapping[str, str]] = {
    "task_id": "id",
    "content_type": "contentType",
    "debounce_ms": "debounce",
    "deadline_ms": "deadline",
    "delay_ms": "delayMs",
    "due_ms": "dueMs",
}
"""Parameters of the client that have another name in bodies."""
_ARGUMENT: Final = re.compile(r"([\w.]+): (.+)")
MOST_ERRORS: Final = 20
"""Problems that are listed one by one."""


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`kind` is one of TYPES; `errors` are paths and messages."""
        super().__init__(detail)
        self.kind, self.status, self.detail, self.errors = kind, TYPES[kind], detail, errors
        retry = {"Retry-After": str(RETRY_SECONDS[kind])} if kind in RETRY_SECONDS else {}
        self.headers = retry | dict(headers or {})

    def view(self) -> dict[str, Any]:
        """Return the members of the answer."""
        listed = [{"path": path, "message": message} for path, message in self.errors[:MOST_ERRORS]]
        return {
            "type": f"urn:delayq:{self.kind}",
            "title": self.kind.replace("-", " ").capitalize(),
            "status": self.status,
            "detail": self.detail,
            **({"errors": listed} if listed else {}),
        }


def invalid(path: str, message: str) -> ApiError:
    """Return the error of one parameter, header or field."""
    return ApiError("invalid-request", f"{path}: {message}", errors=[(path, message)])


def of(error: Exception) -> ApiError | None:  # noqa: PLR0911 -- one for each kind of error
    """Return the answer to an error of the client; None for one that is not expected."""
    match error:
        case ApiError():
            return error
        case SpecError():
            return _listed([(each.path.replace("document", "body"), each.message) for each in error.problems])
        case DelayTooLong():
            return ApiError("invalid-request", str(error), errors=[("due", str(error))])
        case TaskExists():
            hint = "ifExists=keep or replace allows it"
            return ApiError("exists", f"task {error.task_id} exists already ({hint})")
        case ScheduleRefused(reason="QueueFull"):
            return ApiError("queue-full", str(error))
    kind = next((kind for of_kind, kind in KINDS.items() if isinstance(error, of_kind)), None)
    if isinstance(error, InvalidTask) and kind == "invalid-request":
        return _of_task(error)
    return None if kind is None else ApiError(kind, str(error))


def _listed(problems: Sequence[tuple[str, str]]) -> ApiError:
    more = f"; and {len(problems) - 1} more" if problems[1:] else ""
    return ApiError("invalid-request", f"{': '.join(problems[0])}{more}", errors=problems)


def _of_arguments(message: str) -> ApiError:
    """Return the error of arguments: `order: missing argument; ordr: unknown argument` has two paths."""
    found = [_ARGUMENT.fullmatch(each) for each in message.split("; ")]
    named = [(f"payload.{each[1]}", each[2]) for each in found if each]
    return _listed(named) if len(named) == len(found) else invalid("payload", message)


def _of_task(error: InvalidTask) -> ApiError:
    """Return the error of a task in the words of the API; the client's message begins with the path."""
    text = str(error).removesuffix(ANYWAY).replace('if_exists="debounce"', "ifExists=debounce")
    text = text.removeprefix(f"task {error.task_id}: ")
    path, found, message = text.partition(": ")
    if not found:
        return invalid("body", text)
    if path.startswith("task "):  # of an App: "task remind: order: missing argument"
        return _of_arguments(message)
    name = path.partition(" of task ")[0]
    return invalid(FIELDS.get(name, name), message)
