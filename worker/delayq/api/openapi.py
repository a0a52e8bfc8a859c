"""openapi.json: made from the table of routes and the models of bodies and parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from delayq.api.meanings import described
from delayq.api.models import Anything, Base64, Instant, Span, Yes
from delayq.api.problems import TYPES
from delayq.api.rendering import INSTANT
from delayq.api.routes import PREFIX, ROUTES
from delayq.contract.kinds import Choice, Dictionary, Flag, Listing, Text, Whole
from delayq.contract.record import Section, camel, declared, shape_of
from delayq.protocol.results import Outcome, State

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from delayq.api.calls import Route
    from delayq.contract.kinds import Kind

Schema = dict[str, Any]
EVERYWHERE: Final = (
    "invalid-request",
    "unauthenticated",
    "forbidden",
    "misdirected",
    "header-too-large",
    "internal",
    "redis-unavailable",
)
"""Types of errors of every operation."""

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer", "format": "int64"}
_TRUTH: Final = {"type": "boolean"}
_TIME: Final = {"type": "string", "format": "date-time"}
_STORED_OUTCOMES: Final = [
    str(each) for each in (Outcome.CREATED, Outcome.KEPT, Outcome.REPLACED, Outcome.FOLLOWS)
]


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
    "state": {"type": "string", "enum": [str(each) for each in State]},
    **dict.fromkeys(INSTANT.values(), _TIME),
}
ANSWERS: Final[dict[str, Schema]] = {
    "Stored": _object(
        "id due outcome", id=_TEXT, due=_TIME, outcome={"type": "string", "enum": _STORED_OUTCOMES}
    ),
    "Changed": _object("outcome", outcome=_TEXT, due=_TIME),
    "BatchResult": _object(
        "results stored refused",
        results={
            "type": "array",
            "items": _object(
                "id", id=_TEXT, due=_TIME, outcome=_TEXT, confirmed=_TRUTH, error=_ref("RefusedTask")
            ),
        },
        stored=_NUMBER,
        refused=_NUMBER,
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
        lastRun=_object("id began", id=_TEXT, began=_TIME),
        next={"type": "array", "items": _TIME},
    ),
    "Schedules": _object("items", items=_list("Schedule")),
    "Occurrence": _object("id", id=_TEXT),
    "Suspension": _object(
        "suspended suspendedBy",
        suspended=_TRUTH,
        suspendedBy={"type": "array", "items": {"type": "string", "enum": ["document", "command"]}},
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
        suspendedBy={"type": "array", "items": _TEXT},
        since=_TIME,
        reason=_TEXT,
    ),
    "Forecast": _object(
        "now overdue spans schedulesCountedUntil",
        now=_TIME,
        overdue=_NUMBER,
        spans={
            "type": "array",
            "items": _object("from to tasks", **{"from": _TIME, "to": _TIME, "tasks": _NUMBER}),
        },
        schedulesCountedUntil={"type": "object", "additionalProperties": _TIME},
    ),
    "Problem": _object(
        "type title status detail requestId",
        type=_TEXT,
        title=_TEXT,
        status=_NUMBER,
        detail=_TEXT,
        requestId=_TEXT,
        errors={"type": "array", "items": _object("path message", path=_TEXT, message=_TEXT)},
    ),
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
            "schemas": {**bodies, **described(ANSWERS)},
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
        "summary": route.summary,
        "description": f"Needs the right `{route.verb}`.",
        "parameters": inside + beside,
        "responses": {
            **{
                str(status): {"description": name, "content": {"application/json": {"schema": _ref(name)}}}
                for status, name in route.answers.items()
            },
            **_errors(route),
        },
    }
    if route.body is not None:
        required = any(each.required for each in declared(route.body)) or bool(shape_of(route.body).one_of)
        content = {"application/json": {"schema": _ref(route.body.__name__)}}
        made["requestBody"] = {"required": required, "content": content}
    return made


def _errors(route: Route) -> Schema:
    bodies = ("timeout", "too-large", "unsupported-media-type") if route.body is not None else ()
    by_status: dict[int, list[str]] = {}
    for kind in dict.fromkeys((*EVERYWHERE, *bodies, *route.errors)):
        by_status.setdefault(TYPES[kind], []).append(kind)
    return {
        str(status): {
            "description": ", ".join(kinds),
            "content": {"application/problem+json": {"schema": _ref("Problem")}},
        }
        for status, kinds in sorted(by_status.items())
    }


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
    shape = shape_of(record)
    found[record.__name__] = {
        "description": record.__doc__,
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        **({"oneOf": [{"required": [camel(name)]} for name in shape.one_of]} if shape.one_of else {}),
        "properties": properties,
    }


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
            return {"const": True}
        case Base64():
            return {"type": "string", "contentEncoding": "base64"}
        case Whole(low, high):
            return {"type": "integer", "format": "int64", "minimum": low, "maximum": high}
        case Choice(options):
            return {"type": "string", "enum": list(options)}
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
