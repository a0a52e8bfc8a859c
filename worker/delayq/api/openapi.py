"""openapi.json: made from the table of routes and the models of bodies and parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from delayq.api.meanings import described
from delayq.api.models import IF_EXISTS, STATES, Anything, Base64, Instant, Span, Yes, parse
from delayq.api.problems import TYPES
from delayq.api.rendering import INSTANT
from delayq.api.routes import PREFIX, ROUTES
from delayq.contract.kinds import Choice, Dictionary, Flag, Listing, Text, Whole
from delayq.contract.problems import SpecError
from delayq.contract.record import Section, camel, declared, shape_of
from delayq.protocol.results import Cancelled, Outcome, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import DataclassInstance

    from delayq.api.calls import Route
    from delayq.contract.kinds import Kind

Schema = dict[str, Any]
EVERYWHERE: Final = (
    "invalid-request",
    "unauthenticated",
    "forbidden",
    "cross-site",
    "misdirected",
    "header-too-large",
    "internal",
    "refused-by-redis",
    "redis-unavailable",
)
"""Types of errors of every operation."""

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer", "format": "int64"}
_TRUTH: Final = {"type": "boolean"}
_TIME: Final = {"type": "string", "format": "date-time"}


def _enum(name: str, *options: str) -> Schema:
    """Return a schema of a few words; the constants of generated Go begin with the name of the schema."""
    constants = [name + "".join(map(str.capitalize, each.split("_"))) for each in options]
    return {"type": "string", "enum": list(options), "x-enum-varnames": constants}


_OPTIONS: Final[dict[str, Iterable[str]]] = {
    "IfExists": IF_EXISTS,
    "TaskState": State,
    "ListedState": STATES,
    "StoredOutcome": (Outcome.CREATED, Outcome.KEPT, Outcome.REPLACED, Outcome.FOLLOWS),
    "ChangedOutcome": (
        Cancelled.CANCELLED,
        Cancelled.CANCELLING,
        Cancelled.FOLLOW_UP_CANCELLED,
        "rescheduled",
    ),
    "SuspendedBy": ("document", "command"),
}
ENUMS: Final = {name: _enum(name, *map(str, options)) for name, options in _OPTIONS.items()}
"""Texts of which there are a few, by the names that generated clients give them."""
_NAMES: Final = {tuple(each["enum"]): name for name, each in ENUMS.items()}


def _object(required: str = "", **properties: Schema) -> Schema:
    return {
        "type": "object",
        **({"required": required.split()} if required else {}),
        "properties": properties,
    }


def _list(of: str) -> Schema:
    return {"type": "array", "items": _ref(of)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_FAILED: Final[Schema] = {"failures": _NUMBER, "crashes": _NUMBER, "reason": _TEXT, "error": _TEXT}
_IDENTITY: Final[Schema] = {
    "id": _TEXT,
    "kind": _TEXT,
    "version": _NUMBER,
    "state": _ref("TaskState"),
    **dict.fromkeys(INSTANT.values(), _TIME),
}
ANSWERS: Final[dict[str, Schema]] = {
    "Stored": _object("id due outcome", id=_TEXT, due=_TIME, outcome=_ref("StoredOutcome")),
    "Changed": _object("outcome", outcome=_ref("ChangedOutcome"), due=_TIME),
    "BatchResult": _object(
        "results stored refused", results=_list("BatchItem"), stored=_NUMBER, refused=_NUMBER
    ),
    "BatchItem": _object(
        "id",
        id=_TEXT,
        due=_TIME,
        outcome=_ref("StoredOutcome"),
        confirmed=_TRUTH,
        error=_ref("RefusedTask"),
    ),
    "RefusedTask": _object("type status detail", type=_TEXT, status=_NUMBER, detail=_TEXT),
    "StoredTask": _object(
        "id state scheduled",
        **_IDENTITY,
        scheduled=_TIME,
        deadlineMs=_NUMBER,
        expires=_TIME,
        followUpDue=_TIME,
        tags={"type": "array", "items": _TEXT},
        cancelling=_TRUTH,
        **_FAILED,
        payload={},
        payloadBase64=_TEXT,
        contentType=_TEXT,
        headers={"type": "object", "additionalProperties": _TEXT},
        attempts=_NUMBER,
        lateMs=_NUMBER,
    ),
    "Row": _object("id state bytes", **_IDENTITY, bytes=_NUMBER, **_FAILED),
    "Rows": _object("items", items=_list("Row"), cursor=_TEXT),
    "Bulk": _object(
        "tasks followUps inFlight dead tooFar",
        **dict.fromkeys(("tasks", "followUps", "inFlight", "dead", "tooFar"), _NUMBER),
        dryRun=_TRUTH,
    ),
    "Group": _object(
        "group count lastDied error", group=_TEXT, kind=_TEXT, count=_NUMBER, lastDied=_TIME, error=_TEXT
    ),
    "Groups": _object("items", items=_list("Group")),
    "Letters": _object("tasks dryRun", tasks=_NUMBER, spreadMs=_NUMBER, dryRun=_TRUTH),
    "Schedule": _object(
        "name when owner suspended missed skipped next",
        name=_TEXT,
        when=_TEXT,
        kind=_TEXT,
        owner=_TEXT,
        suspended=_TRUTH,
        missed=_NUMBER,
        skipped=_NUMBER,
        lastRun=_ref("LastRun"),
        next={"type": "array", "items": _TIME},
    ),
    "LastRun": _object("id began", id=_TEXT, began=_TIME),
    "Schedules": _object("items", items=_list("Schedule")),
    "Occurrence": _object("id", id=_TEXT),
    "Suspension": _object(
        "suspended suspendedBy",
        suspended=_TRUTH,
        suspendedBy=_list("SuspendedBy"),
        since=_TIME,
        reason=_TEXT,
    ),
    "Queue": _object(
        "queue now scheduled due inFlight retrying parked dead suspect lateMs dueWithin bytes suspended suspendedBy",
        queue=_TEXT,
        now=_TIME,
        **dict.fromkeys(
            ("scheduled", "due", "inFlight", "retrying", "parked", "dead", "suspect", "lateMs"), _NUMBER
        ),
        oldestDue=_TIME,
        nextDue=_TIME,
        dueWithin={"type": "object", "additionalProperties": _NUMBER},
        bytes=_NUMBER,
        suspended=_TRUTH,
        suspendedBy=_list("SuspendedBy"),
        since=_TIME,
        reason=_TEXT,
    ),
    "Forecast": _object(
        "now overdue spans schedulesCountedUntil",
        now=_TIME,
        overdue=_NUMBER,
        spans=_list("ForecastSpan"),
        schedulesCountedUntil={"type": "object", "additionalProperties": _TIME},
    ),
    "ForecastSpan": _object("from to tasks", **{"from": _TIME, "to": _TIME, "tasks": _NUMBER}),
    "Problem": _object(
        "type title status detail requestId",
        type=_TEXT,
        title=_TEXT,
        status=_NUMBER,
        detail=_TEXT,
        requestId=_TEXT,
        errors=_list("ProblemItem"),
    ),
    "ProblemItem": _object("path message", path=_TEXT, message=_TEXT),
}
"""The schemas of answers. tests/contract/test_openapi.py compares what is served."""


def document() -> Schema:
    """Return the document, OpenAPI 3.1."""
    paths: dict[str, Schema] = {}
    bodies: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
        if route.body is not None:
            _add(bodies, route.body)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "delayq",
            "version": "v1alpha1",
            "description": "The HTTP API of one queue of delayq. docs/reference/http.md explains it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {**bodies, **described(ANSWERS), **ENUMS},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> Schema:
    inside = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    beside = [
        {
            "name": each.name,
            "in": "query",
            "required": each.required or each.name == "id",
            "description": each.doc,
            "schema": schema_of(each.kind) | _default(each.default, each.kind),
        }
        for each in declared(route.query)
        if not (each.name == "id" and "{id}" in route.path)
    ]
    made: Schema = {
        "operationId": route.name,
        "tags": [re.split(r"\W", route.path)[1]],
        "summary": route.summary,
        "description": f"Needs the right `{route.verb}`.",
        "parameters": inside + beside,
        "responses": {
            **{
                str(status): {"description": name, "content": {"application/json": {"schema": _ref(name)}}}
                for status, name in route.answers.items()
            },
            "default": {
                "description": _errors(route),
                "headers": {
                    "Retry-After": {
                        "description": "Of 429 and 503: the seconds to wait before the next attempt.",
                        "schema": {"type": "integer"},
                    }
                },
                "content": {"application/problem+json": {"schema": _ref("Problem")}},
            },
        },
    }
    if route.body is not None:
        required = _needs_a_field(route.body)
        content = {"application/json": {"schema": _ref(route.body.__name__)}}
        made["requestBody"] = {"required": required, "content": content}
    return made


def _needs_a_field(record: type[DataclassInstance]) -> bool:
    """Whether an empty body is refused."""
    try:
        parse(record, {})
    except SpecError:
        return True
    return False


def _errors(route: Route) -> str:
    """Return the status and the type of each error: one answer `default` makes one type of it in clients."""
    bodies = ("timeout", "too-large", "unsupported-media-type") if route.body is not None else ()
    kinds = dict.fromkeys((*EVERYWHERE, *bodies, *route.errors))
    return ", ".join(f"{TYPES[kind]} {kind}" for kind in sorted(kinds, key=TYPES.__getitem__))


def _add(found: dict[str, Schema], record: type[DataclassInstance]) -> None:
    """Add the schema of a body and of the records in it."""
    properties = {}
    for each in declared(record):
        properties[each.name] = {
            "description": each.doc,
            **schema_of(each.kind),
            **_default(each.default, each.kind),
        }
        item = each.kind.item if isinstance(each.kind, Listing) else each.kind
        if isinstance(item, Section):
            _add(found, item.record)
    required = [each.name for each in declared(record) if each.required]
    found[record.__name__] = {
        "description": (record.__doc__ or "") + _only_one(record),
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": properties,
    }


def _only_one(record: type[DataclassInstance]) -> str:
    """Return words for `oneOf`: from that, generators make types that no program can fill in."""
    names = [f"`{camel(name)}`" for name in shape_of(record).one_of]
    return f" Exactly one of {', '.join(names)} is required." if names else ""


def _default(default: object, kind: Kind) -> Schema:
    return {} if default is None or isinstance(kind, Dictionary) else {"default": default}


def schema_of(kind: Kind) -> Schema:  # noqa: C901, PLR0911, PLR0912 -- one for each kind
    """Return the schema of a kind."""
    match kind:
        case Anything():
            return {}
        case Instant():
            return {"type": "string", "format": "date-time"}
        case Span():
            return {"type": "string", "examples": ["30m", "1h30m"]}
        case Yes():
            return {"type": "boolean"}
        case Base64():
            return {"type": "string", "contentEncoding": "base64"}
        case Whole(low, high):
            return {"type": "integer", "format": "int64", "minimum": low, "maximum": high}
        case Choice(options):
            return _ref(_NAMES[tuple(options)])
        case Flag():
            return {"type": "boolean"}
        case Text():
            least = {"minLength": kind.min_length} if kind.min_length else {}
            return {"type": "string", **least, "maxLength": kind.max_length}
        case Listing():
            return {
                "type": "array",
                "minItems": kind.least,
                "maxItems": kind.most,
                "items": schema_of(kind.item),
            }
        case Dictionary():
            return {
                "type": "object",
                "maxProperties": kind.most,
                "additionalProperties": schema_of(kind.value),
            }
        case Section(record):
            return _ref(record.__name__)
        case _:
            raise AssertionError(kind)
