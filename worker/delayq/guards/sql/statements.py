"""Users' statements: what they may be, and their parameters from a task. Values are bound, never written into SQL."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from delayq.contract.problems import quote, type_name
from delayq.errors import Bury, InvalidDocument
from delayq.guards.sql.tokens import code, pieces, unfinished
from delayq.message import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import TextClause

    from delayq.message import Task

PAYLOAD: Final = "payload_"
OWN: Final = ("task_id", "queue", "token", "attempt", "due_ms")
READS: Final = ("SELECT", "WITH")
WRITES: Final = ("UPDATE", "INSERT", "DELETE", "WITH")

_PARAMETER: Final = re.compile(r"(?<![:\w\\]):(\w+)(?![:\w])")
_LOCKING: Final = re.compile(
    r"\bFOR\s+(NO\s+KEY\s+UPDATE|UPDATE|SHARE|KEY\s+SHARE)\b|\bLOCK\s+IN\s+SHARE\s+MODE\b", re.IGNORECASE
)


class Statement:
    """One statement of the document."""

    def __init__(self, sql: str, *, field: str, begins: tuple[str, ...]) -> None:
        """`field` is its path, for messages. InvalidDocument when it is not one statement that begins as it should."""
        self.field = field
        self.sql = _one(sql, field, begins)
        self.names = tuple(dict.fromkeys(_PARAMETER.findall(code(self.sql))))

    def know(self, more: Iterable[str] = ()) -> None:
        """InvalidDocument when a parameter is none of ours, of the payload's or of `more`."""
        for name in self.names:
            if name not in OWN and name not in more and not name.startswith(PAYLOAD):
                known = ", ".join(f":{each}" for each in (*OWN, f"{PAYLOAD}<field>", *more))
                raise InvalidDocument(f"{self.field}: expected parameters from {known}, got :{name}")

    @property
    def locking(self) -> bool:
        """Whether it says itself that it locks rows."""
        return _LOCKING.search(code(self.sql)) is not None

    @cached_property
    def clause(self) -> TextClause:
        """The statement for SQLAlchemy."""
        return self.followed_by("")

    def followed_by(self, end: str) -> TextClause:
        """Return it with more SQL behind it, on a line of its own, for the last one may be a comment."""
        # In texts and comments, a colon is a colon; SQLAlchemy would see parameters there, too.
        parts = (part if is_code else part.replace(":", r"\:") for part, is_code in pieces(self.sql))
        return text("".join(parts) + (f"\n{end}" if end else ""))

    def values(self, task: Task, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the parameters' values for a task. Bury when its payload has no such field: no retry will help."""
        return {name: self._value(name, task, more or {}) for name in self.names}

    def _value(self, name: str, task: Task, more: Mapping[str, Any]) -> object:
        if name in more:
            return more[name]
        if name in OWN:
            return task.id if name == "task_id" else getattr(task, name)
        if not name.startswith(PAYLOAD):
            known = ", ".join(f":{each}" for each in (*OWN, f"{PAYLOAD}<field>", *more))
            raise InvalidDocument(f"{self.field}: expected parameters from {known}, got :{name}")
        return self._of_payload(name, task)

    def _of_payload(self, name: str, task: Task) -> object:
        field = name.removeprefix(PAYLOAD)
        expected = f"{self.field}: parameter :{name} expects a JSON object with {field} in the payload, got "
        if task.content_type != JSON_TYPE:
            raise Bury(expected + task.content_type)
        payload = task.payload
        if not isinstance(payload, dict):
            raise Bury(expected + type_name(payload))
        if field not in payload:
            raise Bury(expected + "one without it")
        value = payload[field]
        if isinstance(value, dict | list):
            raise Bury(f"{expected}{type_name(value)} there")
        return value


def _one(sql: str, field: str, begins: tuple[str, ...]) -> str:
    only = code(sql)
    if unfinished(only):
        raise InvalidDocument(
            f"{field}: expected one SQL statement, got a quote or comment that does not end"
        )
    body, semicolon, rest = only.partition(";")
    if rest.strip():
        raise InvalidDocument(f"{field}: expected one SQL statement, got several")
    first = re.split(r"\W", body.lstrip(), maxsplit=1)[0]
    if first.upper() not in begins:
        expected = f"{field}: expected a statement that begins with {' or '.join(begins)}"
        raise InvalidDocument(f"{expected}, got {quote(first[:40])}")
    return _without_semicolon(sql) if semicolon else sql.strip()


def _without_semicolon(sql: str) -> str:
    return "".join(part.replace(";", " ") if is_code else part for part, is_code in pieces(sql)).strip()
