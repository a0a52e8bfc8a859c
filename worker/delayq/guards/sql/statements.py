"""Users' SQL statements in spec.guard: how they are parsed, bound and run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from delayq.contract.problems import quote, type_name
from delayq.errors import Bury, InvalidDocument
from delayq.guards.sql.errors import driver_message, unfit
from delayq.protocol.envelope import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import Connection, CursorResult, TextClause

    from delayq.protocol.envelope import Task

# The first match wins, and its own syntax ends it. A backslash escapes only in MySQL and in PostgreSQL's E'…'. A text
# with an escaped quote is refused as unfinished, so that it is not parsed wrongly.
_QUOTED: Final = re.compile(
    r"""
    '(?:[^']|'')*'                 # text
  | "(?:[^"]|"")*"                 # a name; MySQL: text
  | `(?:[^`]|``)*`                 # MySQL's name
  | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag)   # PostgreSQL's text in dollars
  | --[^\n]*                       # comments
  | /\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN: Final = re.compile(r"""['"`]|/\*|\$(?:[A-Za-z_]\w*)?\$""")


def pieces(statement: str) -> Iterator[tuple[str, bool]]:
    """Split a statement into (text, whether it is code)."""
    at = 0
    for quoted in _QUOTED.finditer(statement):
        yield statement[at : quoted.start()], True
        yield quoted[0], False
        at = quoted.end()
    yield statement[at:], True


def code(statement: str) -> str:
    """Return the statement with each text, quoted name and comment replaced by a space."""
    return "".join(text if is_code else " " for text, is_code in pieces(statement))


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
        """`field` is its path, for messages. InvalidDocument unless `sql` is one statement with one of `begins`."""
        self.field = field
        self.sql = _one(sql, field, begins)
        self._clauses: dict[str, TextClause] = {}
        self.names = tuple(dict.fromkeys(_PARAMETER.findall(code(self.sql))))

    def check_parameters(self, more: Iterable[str] = ()) -> None:
        """InvalidDocument for a parameter that is neither the task's, nor the payload's, nor in `more`."""
        for name in self.names:
            if name not in OWN and name not in more and not name.startswith(PAYLOAD):
                raise InvalidDocument(self._unknown(name, more))

    @property
    def locking(self) -> bool:
        """Whether it contains a lock clause."""
        return _LOCKING.search(code(self.sql)) is not None

    def followed_by(self, end: str) -> TextClause:
        """Return the statement followed by `end` on a new line, as its last line may be a comment."""
        if end not in self._clauses:
            self._clauses[end] = _clause(self.sql + (f"\n{end}" if end else ""))
        return self._clauses[end]

    def run(
        self, connection: Connection, task: Task, more: Mapping[str, Any] | None = None, *, end: str = ""
    ) -> CursorResult[Any]:
        """Execute the statement for a task, followed by `end`. Bury if it cannot use the task's values."""
        values = self.values(task, more)
        clause = self.followed_by(end).execution_options(preserve_rowcount=True)
        try:
            return connection.execute(clause, values)
        except Exception as error:
            if unfit(error) and any(name.startswith(PAYLOAD) for name in values):
                raise Bury(
                    f"{self.field}: the database rejects a value: {driver_message(error, None)}"
                ) from error
            raise

    def try_out(self, connection: Connection, *, end: str = "") -> CursorResult[Any]:
        """Execute a query with NULL for all parameters."""
        return connection.execute(self.followed_by(end), dict.fromkeys(self.names))

    def explain(self, connection: Connection) -> None:
        """EXPLAIN a statement that changes rows."""
        connection.execute(_clause(f"EXPLAIN {self.sql}"), dict.fromkeys(self.names))

    def values(self, task: Task, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the parameters' values for a task. Bury when its payload lacks a field: a retry would not help."""
        return {name: self._value(name, task, more or {}) for name in self.names}

    def _value(self, name: str, task: Task, more: Mapping[str, Any]) -> object:
        if name in more:
            return more[name]
        if name in OWN:
            return task.id if name == "task_id" else getattr(task, name)
        if not name.startswith(PAYLOAD):  # check() may miss it: see errors.untyped
            raise Bury(self._unknown(name, more))
        return self._of_payload(name, task)

    def _unknown(self, name: str, more: Iterable[str]) -> str:
        known = ", ".join(f":{each}" for each in (*OWN, f"{PAYLOAD}<field>", *more))
        return f"{self.field}: expected parameters from {known}, got :{name}"

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


def _clause(sql: str) -> TextClause:
    # Escape colons in texts and comments, where SQLAlchemy would see parameters, too.
    return text("".join(part if is_code else part.replace(":", r"\:") for part, is_code in pieces(sql)))


def _one(sql: str, field: str, begins: tuple[str, ...]) -> str:
    only = code(sql)
    if _OPEN.search(only):
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
    if semicolon:
        sql = "".join(part.replace(";", " ") if is_code else part for part, is_code in pieces(sql))
    return sql.strip()
