"""The bodies, parameters and answers of the HTTP API, declared as the fields of documents are.

openapi.py makes schemas from them. Not here: what the client checks, such as IDs, tags and limits.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qsl

from delayq.client.encoding import NewTask
from delayq.client.times import MAX_MS, text_instant_ms
from delayq.contract.fields import choice, flag, listing, sections, text, whole
from delayq.contract.kinds import Dictionary, Flag, Kind, Text, Whole
from delayq.contract.problems import INVALID, Place, Problem, SpecError, type_name
from delayq.contract.record import Rule, Shape, camel, declared, read_record
from delayq.durations import milliseconds
from delayq.protocol.envelope import BYTES_TYPE, encode_json
from delayq.protocol.results import INDEXES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from delayq.client.enqueue import IfExists

MOST_TASKS: Final = 5_000
"""Of a batch, and IDs of one request."""
MOST_MS: Final = MAX_MS - 1
MOST_ROWS: Final = 1_000
STATES: Final = tuple(map(str, INDEXES))
IF_EXISTS: Final = ("keep", "reject", "replace", "debounce")


@dataclass(frozen=True, slots=True)
class Anything(Kind):
    """A JSON value of any type."""

    expected: str = "a JSON value"

    def fits(self, value: object) -> bool:  # noqa: ARG002 -- Kind's signature
        """Every value does."""
        return True


@dataclass(frozen=True, slots=True)
class Instant(Kind):
    """RFC 3339 with its zone; milliseconds since 1970 when it is read."""

    expected: str = "a time like 2026-12-01T09:00:00Z"

    def read(self, value: object, place: Place) -> object:
        """Parse it."""
        if not isinstance(value, str):
            return place.refuse(f"expected {self.expected}, got {type_name(value)}")
        try:
            return text_instant_ms(value)
        except ValueError as error:
            hint = "; in a query, + must be %2B" if " " in value[-6:] else ""
            return place.refuse(f"{error}{hint}")


@dataclass(frozen=True, slots=True)
class Span(Kind):
    """A duration; milliseconds when it is read."""

    signed: bool = False
    expected: str = "a duration like 30m"

    def read(self, value: object, place: Place) -> object:
        """Parse it."""
        if isinstance(value, str):
            try:
                return milliseconds(value, signed=self.signed)
            except ValueError as error:
                return place.refuse(str(error))
        hint = "; a field that ends with Ms takes milliseconds" if type(value) is int else ""
        return place.refuse(f"expected {self.expected}, got {type_name(value)}{hint}")


@dataclass(frozen=True, slots=True)
class Base64(Kind):
    """Bytes as base64."""

    expected: str = "base64 text"

    def read(self, value: object, place: Place) -> object:
        """Decode it."""
        try:
            return base64.b64decode(value, validate=True)  # type: ignore[arg-type] # a TypeError is caught
        except (TypeError, ValueError, binascii.Error):
            return place.refuse(f"expected {self.expected}, got {type_name(value)}")


@dataclass(frozen=True, slots=True)
class Yes(Kind):
    """The value true: the field is there, or it is not."""

    expected: str = "true"

    def fits(self, value: object) -> bool:
        """Only true does."""
        return value is True


def words(most: int = 1_000) -> Text:
    """Return the kind of text that the client checks further."""
    return Text(expected=f"text of 1 to {most} characters", max_length=most)


def _declare(kind: Kind, doc: str, *, required: bool = False) -> Any:  # noqa: ANN401 -- as dataclasses.field
    return field(default=None, metadata={"kind": kind, "doc": doc, "required": required, "immutable": False})


def _instant(doc: str) -> Any:  # noqa: ANN401 -- as above
    return _declare(Instant(), doc)


def _span(doc: str, *, signed: bool = False) -> Any:  # noqa: ANN401 -- as above
    return _declare(Span(signed), doc)


def _ms(doc: str, low: int = 0) -> Any:  # noqa: ANN401 -- as above
    return _declare(Whole(low, MOST_MS), doc)


def at_most_one(*names: str) -> Rule:
    """Return the rule that at most one of these fields is given."""
    listed = " and ".join([", ".join(map(camel, names[:-1])), camel(names[-1])])
    return Rule(
        f"expected at most one of {listed}",
        names,
        lambda *given: given.count(None) >= len(given) - 1,
        "",
    )


_DUE: Final = at_most_one("delay", "delay_ms", "due", "due_ms")
_PAYLOAD: Final = at_most_one("payload", "payload_base64")
_DEADLINE: Final = at_most_one("deadline", "deadline_ms")
_DEBOUNCE: Final = at_most_one("debounce", "debounce_ms")


def either(one: int | None, other: int | None) -> int | None:
    """Return the one that is given."""
    return other if one is None else one


@dataclass(kw_only=True)
class Due:
    """A due time, in one of four ways."""

    delay: int | None = _span("Due this long after now.")
    delay_ms: int | None = _ms("The same in milliseconds.")
    due: int | None = _instant("Due at this instant; the past means now.")
    due_ms: int | None = _ms("The same in milliseconds since 1970.")


@dataclass(kw_only=True)
class When(Due):
    """A new due time."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("delay", "delay_ms", "due", "due_ms"))


@dataclass(kw_only=True)
class Task(Due):
    """A task to schedule."""

    SHAPE: ClassVar[Shape] = Shape(rules=(_DUE, _PAYLOAD, _DEADLINE, _DEBOUNCE))

    payload: Any = _declare(Anything(), "Any JSON value, by default null.")
    payload_base64: bytes | None = _declare(Base64(), "Bytes instead of a JSON value.")
    content_type: str | None = _declare(words(), "The type of payloadBase64.")
    version: int = whole(1, 65_535, default=1, doc="Version of the kind.")
    deadline: int | None = _span("Do not start the task later than this after its due time.")
    deadline_ms: int | None = _ms("The same in milliseconds.", 1)
    debounce: int | None = _span("With ifExists=debounce, how far the due time may move from the first call.")
    debounce_ms: int | None = _ms("The same in milliseconds.", 1)
    headers: Mapping[str, str] | None = _declare(
        Dictionary(
            name=words(65_536), value=Text(expected="text", min_length=0, max_length=65_536), most=1_000
        ),
        "Texts that travel with the task.",
    )
    tags: tuple[str, ...] | None = listing(
        words(), least=0, most=64, default=None, doc="Up to 8 tags of 64 bytes."
    )

    def new_task(self, task_id: str | None, kind: str | None) -> NewTask:
        """Return the task for the client."""
        raw = self.payload_base64
        return NewTask(
            self.payload if raw is None else raw,
            either(self.delay, self.delay_ms),
            either(self.due, self.due_ms),
            task_id,
            self.headers,
            self.content_type or (None if raw is None else BYTES_TYPE),
            kind,
            self.version,
            either(self.deadline, self.deadline_ms),
            either(self.debounce, self.debounce_ms),
            self.tags,
        )


@dataclass(kw_only=True)
class NamedTask(Task):
    """A task to schedule, with its kind and ID."""

    kind: str | None = _declare(words(), "The kind of task.")
    id: str | None = _declare(words(), "The ID; by default a generated one.")


@dataclass(kw_only=True)
class Batch:
    """Tasks to schedule."""

    tasks: tuple[NamedTask, ...] = sections(NamedTask, least=0, most=MOST_TASKS, doc="The tasks.")


@dataclass(kw_only=True)
class Exists:
    """What happens if the ID exists."""

    if_exists: IfExists = choice(*IF_EXISTS, default="keep", doc="What to do if the ID exists.")
    unknown_kind: bool = flag(default=False, doc="Store it even if no worker takes its kind yet.")


@dataclass(kw_only=True)
class Named:
    """An ID that is not in the path."""

    id: str | None = _declare(words(), "The ID, if it is not in the path.")


@dataclass(kw_only=True)
class NamedRunning(Named):
    """An ID that is not in the path, and whether a run is cancelled."""

    running: bool = flag(default=False, doc="Cancel the run of a task in flight, too.")


@dataclass(kw_only=True)
class NamedExists(Exists, Named):
    """An ID that is not in the path, and what happens if it exists."""


@dataclass(kw_only=True)
class Filters:
    """Which tasks: those that have all that is given."""

    SHAPE: ClassVar[Shape] = Shape(
        rules=(at_most_one("due_from", "due_from_ms"), at_most_one("due_before", "due_before_ms"))
    )

    tag: str | None = _declare(words(), "Tasks with this tag.")
    kind: str | None = _declare(words(), "Tasks of this kind.")
    due_from: int | None = _instant("Tasks due at this instant or later.")
    due_from_ms: int | None = _ms("The same in milliseconds since 1970.")
    due_before: int | None = _instant("Tasks due before this instant.")
    due_before_ms: int | None = _ms("The same in milliseconds since 1970.")

    @property
    def chosen(self) -> dict[str, Any]:
        """The filters that are given, for the client."""
        found = {
            "tag": self.tag,
            "kind": self.kind,
            "due_from_ms": either(self.due_from, self.due_from_ms),
            "due_before_ms": either(self.due_before, self.due_before_ms),
        }
        return {name: value for name, value in found.items() if value is not None}


_FILTER: Final = Rule(
    "expected at least one of tag, kind, dueFrom and dueBefore",
    ("tag", "kind", "due_from", "due_from_ms", "due_before", "due_before_ms"),
    lambda *given: any(each is not None for each in given),
    "",
)


@dataclass(kw_only=True)
class Some(Filters):
    """Which tasks; at least one filter."""

    SHAPE: ClassVar[Shape] = Shape(rules=(*Filters.SHAPE.rules, _FILTER))


@dataclass(kw_only=True)
class Cancel(Some):
    """Which tasks to cancel."""

    dry_run: bool = flag(default=False, doc="Count the tasks, and change nothing.")


@dataclass(kw_only=True)
class Reschedule(Cancel):
    """Which tasks to reschedule, and when they are due."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("due", "due_ms", "shift", "shift_ms"), rules=Some.SHAPE.rules)

    due: int | None = _instant("The new due time of each.")
    due_ms: int | None = _ms("The same in milliseconds since 1970.")
    shift: int | None = _span("How much later each is due; -1h is earlier.", signed=True)
    shift_ms: int | None = _ms("The same in milliseconds.", -MOST_MS)


@dataclass(kw_only=True)
class Page:
    """Which part of a list."""

    limit: int = whole(1, MOST_ROWS, default=100, doc="How many.")
    cursor: str | None = _declare(words(), "Where to go on, from the answer before.")


@dataclass(kw_only=True)
class Listed(Page, Filters):
    """Which tasks to list."""

    state: str = choice(*STATES, default="scheduled", doc="The state of the tasks.")


@dataclass(kw_only=True)
class Letters(Page):
    """Which dead letters to list."""

    tag: str | None = _declare(words(), "Dead letters with this tag.")
    kind: str | None = _declare(words(), "Dead letters of this kind.")


@dataclass(kw_only=True)
class OfKind:
    """Of one kind only."""

    kind: str | None = _declare(words(), "Of this kind only.")


@dataclass(kw_only=True)
class Purge:
    """Which dead letters: by IDs, by group, with a tag, or all."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("ids", "group", "tag", "all"))

    ids: tuple[str, ...] | None = listing(
        words(), least=1, most=MOST_TASKS, default=None, doc="Stored IDs of dead letters."
    )
    group: str | None = _declare(words(), "A group of GET /deadletters:groups.")
    tag: str | None = _declare(words(), "Dead letters with this tag.")
    all: bool | None = _declare(Yes(), "true: all dead letters.")
    kind: str | None = _declare(words(), "Beside tag and all: of this kind only.")
    dry_run: bool = flag(default=False, doc="Count the dead letters, and change nothing.")


@dataclass(kw_only=True)
class Redrive(Purge):
    """Which dead letters to schedule again, and how fast."""

    rate_per_second: int | None = _declare(
        Whole(1, 1_000_000), "How many fall due in a second; by default all at once."
    )


@dataclass(kw_only=True)
class Within:
    """How far to look ahead."""

    within: int = _declare(Span(), "How far to look ahead, up to 366d; by default 24h.")


@dataclass(kw_only=True)
class Times:
    """How many next times."""

    count: int = whole(1, 100, default=5, doc="How many next times to return.")


@dataclass(kw_only=True)
class Suspend:
    """Why tasks stop."""

    drain: bool = flag(default=False, doc="For the status: whether the running tasks are waited for.")
    reason: str = text(
        Text(
            expected="a line of at most 200 characters",
            min_length=0,
            max_length=200,
            pattern=r"[^\x00-\x1f\x7f]*",
        ),
        default="",
        doc="Why.",
    )


@dataclass(kw_only=True)
class Nothing:
    """No field at all."""


def parse(model: type[DataclassInstance], given: object) -> Any:  # noqa: ANN401 -- of the model
    """Return the value of a model; SpecError names each problem by its path."""
    problems: list[Problem] = []
    place = Place("", problems)
    if not isinstance(given, Mapping):
        raise SpecError((Problem("body", f"expected a JSON object, got {type_name(given)}"),))
    _refuse_null(given, place)
    found = read_record(model, given, place)
    if problems or found is INVALID:
        raise SpecError(tuple(problems))
    return found


def _refuse_null(given: Mapping[Any, Any], place: Place) -> None:
    """Refuse null, which documents take as absent: openapi.json allows it for payloads only."""
    for name, value in given.items():
        if value is None and name != "payload":
            place.field(str(name)).refuse("expected a value, got null: leave the field out instead")
    tasks = given.get("tasks")
    for at, task in enumerate(tasks if isinstance(tasks, list) else ()):
        if isinstance(task, dict) and None in task.values():
            _refuse_null(task, place.field("tasks").item(at))


@lru_cache(256)  # most requests have the same few queries
def parse_query(model: type[DataclassInstance], query: bytes) -> Any:  # noqa: ANN401 -- as above
    """Return the value of a model from the parameters of a query; SpecError as in parse()."""
    kinds = {each.name: each.kind for each in declared(model)}
    given: dict[str, Any] = {}
    try:
        parameters = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise SpecError((Problem("query", "expected percent-encoded UTF-8, got other bytes"),)) from None
    for name, value in parameters:
        if name in given:
            raise SpecError((Problem(name, "expected one value, got several"),))
        given[name] = _typed(kinds.get(name), value)
    return parse(model, given)


def _typed(kind: Kind | None, value: str) -> object:
    """Return the number or truth value of a parameter, or the text as it is."""
    if isinstance(kind, Whole) and _is_whole(value):
        return int(value)
    return {"true": True, "false": False}.get(value, value) if isinstance(kind, Flag) else value


def _is_whole(value: str) -> bool:
    return len(value) <= 20 and value.lstrip("-").isdecimal() and value.isascii()  # noqa: PLR2004 -- digits of MOST_MS


def dumps(value: object) -> bytes:
    """Return compact JSON."""
    return encode_json(value).encode()
