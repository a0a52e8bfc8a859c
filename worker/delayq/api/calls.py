"""One request as a route sees it, and what a route is."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq.api import rendering
from delayq.api.access import audit
from delayq.api.models import Nothing
from delayq.api.problems import ApiError, invalid
from delayq.protocol.results import Position

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from delayq.api.access import Caller, Verb
    from delayq.api.published import PublishedKinds
    from delayq.client.aio import Client
    from delayq.client.encoding import NewTask, TaskEncoder
    from delayq.contract import DelayQueue
    from delayq.protocol.results import State

NO_KIND: Final = "-"
"""In a path: a task without a kind."""
CHECK_BYTES: Final = 4
"""Of a cursor: they tell one of another request, or one that was cut."""
Check = Callable[["NewTask"], None]


class Answer(NamedTuple):
    """What is sent."""

    value: Mapping[str, Any]
    status: int = 200
    headers: Mapping[str, str] = {}
    text: bytes = b""
    """The value as JSON, if it is made already."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """The queue that an API serves."""

    queue: DelayQueue
    client: Client
    encoder: TaskEncoder
    """Checks all tasks of a batch before the client stores one."""
    check: Check
    """Raises InvalidTask for arguments that do not fit the App; it may know no App."""
    published: PublishedKinds | None = None
    """What workers take; None if they have no App."""


@dataclass(kw_only=True)
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
        allowed = ", ".join(sorted(kinds))
        hint = (
            f"on all kinds; filter by a kind that it has the right on: {allowed}"
            if kinds and kind is None
            else ""
        )
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


async def page(call: Call, state: State, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of a list, and a cursor unless it is the last one."""
    query = call.query
    asked = repr(sorted({**vars(query), "cursor": None, "limit": None}.items())).encode()
    after = None if query.cursor is None else _position(query.cursor, asked)
    found = await call.client.page(state, after=after, limit=query.limit, **chosen)
    view: dict[str, Any] = {"items": [rendering.row(each) for each in found.rows]}
    if found.after is not None:
        where = b"%.17g %s" % found.after
        view["cursor"] = base64.urlsafe_b64encode(_check(asked, where) + where).decode()
    return view


def _position(cursor: str, asked: bytes) -> Position:
    """Parse a cursor. `asked` is the request with which it may be used."""
    try:
        found = base64.b64decode(cursor, altchars=b"-_", validate=True)
        score, member = found[CHECK_BYTES:].split(b" ", 1)
        if found[:CHECK_BYTES] == _check(asked, found[CHECK_BYTES:]) and not math.isnan(float(score)):
            return Position(float(score), member)
    except ValueError:
        pass
    raise invalid("cursor", "expected the cursor of an answer to the same request")


def _check(asked: bytes, where: bytes) -> bytes:
    return zlib.crc32(asked + where).to_bytes(CHECK_BYTES)
