"""One request as a route sees it, and what a route is."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq.api.access import audit
from delayq.api.models import Nothing
from delayq.api.problems import ApiError, invalid

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from delayq.api.access import Caller, Verb
    from delayq.client.aio import Client
    from delayq.client.encoding import NewTask, TaskEncoder
    from delayq.contract import DelayQueue

NO_KIND: Final = "-"
"""In a path: a task without a kind."""
MOST_LISTED: Final = 100_000
"""Tasks that a cursor reaches: pages are read by their offset."""
Check = Callable[["NewTask"], None]


class Answer(NamedTuple):
    """What is sent."""

    value: Mapping[str, Any]
    status: int = 200
    headers: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Served:
    """The queue that an API serves."""

    queue: DelayQueue
    client: Client
    encoder: TaskEncoder
    """Checks all tasks of a batch before the client stores one."""
    check: Check
    """Raises InvalidTask for arguments that do not fit the App; it may know no App."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request with its parsed parameters and body."""

    served: Served
    caller: Caller
    request_id: str
    path: Mapping[str, str]
    query: Any
    body: Any

    @property
    def client(self) -> Client:
        """The client of the queue."""
        return self.served.client

    @property
    def kind(self) -> str | None:
        """The kind in the path."""
        kind = self.path["kind"]
        return None if kind == NO_KIND else kind

    @property
    def task_id(self) -> str:
        """The ID in the path, or in the query."""
        inside, beside = self.path.get("id"), self.query.id
        if (inside is None) == (beside is None):
            raise invalid(
                "id", f"expected an ID in the path or as ?id=, got {'both' if inside else 'neither'}"
            )
        return inside or beside or ""

    def allow(self, verb: Verb, kind: str | None, *, on: str = "") -> None:
        """Raise the answer 403 unless the caller has the right on tasks of this kind (None: without a kind).

        `on`: what the answer names instead of a kind that the caller did not name, and may not know.
        """
        if not self.caller.may(verb, kind):
            of_kind = f"on tasks of kind {kind}" if kind else "on tasks without a kind"
            self._refuse(verb, on or of_kind, kind)

    def allow_some(self, verb: Verb, kind: str | None) -> None:
        """The same for all tasks of a kind, or for those of all kinds without one."""
        kinds = self.caller.kinds(verb)
        if kinds is None or (kind is not None and kind in kinds):
            return
        hint = f"on all kinds; choose by kind: {', '.join(sorted(kinds))}" if kinds and kind is None else ""
        self._refuse(verb, hint or (f"on tasks of kind {kind}" if kind else "on all kinds"), kind)

    async def allow_task(self, verb: Verb, kind: str | None, task_id: str) -> None:
        """The same for a task. Its ID tells its kind, unless it is one of a schedule or the path has no kind."""
        if self.caller.kinds(verb) is not None and (kind is None or task_id.startswith("@")):
            found = await self.client.get(task_id)
            kind = kind if found is None else found.kind or None
        self.allow_found(verb, kind)

    def allow_found(self, verb: Verb, kind: str | None) -> None:
        """The same for the task of the path, whose kind was looked up."""
        on = f"on tasks of kind {self.kind}" if self.kind else f"on task {self.task_id}, if there is one"
        self.allow(verb, kind, on=on)

    def _refuse(self, verb: Verb, on: str, kind: str | None) -> None:
        audit.refused(self.caller, verb, what={"kind": kind}, request=self.request_id)
        raise ApiError("forbidden", f"{self.caller.name} has no right to {verb} {on}")

    def log(self, verb: Verb, operation: str, count: int, **what: object) -> None:
        """Log a change."""
        named = {"operation": operation, **what}
        audit.changed(self.caller, verb, what=named, count=count, request=self.request_id)


@dataclass(frozen=True, kw_only=True)
class Route:
    """One operation: where it is, what it takes and what it answers."""

    method: str
    path: str
    name: str
    """The operation's ID, from which generated clients name their functions."""
    summary: str
    verb: Verb
    run: Callable[[Call], Awaitable[Answer]]
    query: type[DataclassInstance] = Nothing
    body: type[DataclassInstance] | None = None
    answers: Mapping[int, str] = field(default_factory=lambda: {200: "Answer"})
    """Statuses of success, and the name of a schema of openapi.py."""
    errors: tuple[str, ...] = ()
    """Types of errors besides those of every operation."""
    long: bool = False
    """Changes many tasks, so there is no bound on its time."""


def _key(call: Call) -> int:
    """Return a number for the parameters with which a cursor may be used."""
    return zlib.crc32(repr(sorted({**vars(call.query), "cursor": None, "limit": None}.items())).encode())


def offset_of(call: Call) -> int:
    """Return where a page begins."""
    if call.query.cursor is None:
        return 0
    try:
        offset, key = json.loads(base64.urlsafe_b64decode(call.query.cursor.encode()))
        if type(offset) is int and 0 <= offset < MOST_LISTED and key == _key(call):
            return offset
    except (ValueError, TypeError, RecursionError):
        pass
    raise invalid("cursor", "expected the cursor of an answer to the same request")


def page(call: Call, rows: list[Mapping[str, Any]], offset: int) -> dict[str, Any]:
    """Return a page, and a cursor if `rows` has one row more than it."""
    limit = call.query.limit
    if len(rows) <= limit or offset + limit >= MOST_LISTED:
        return {"items": rows[:limit]}
    cursor = base64.urlsafe_b64encode(json.dumps([offset + limit, _key(call)]).encode()).decode()
    return {"items": rows[:limit], "cursor": cursor}
