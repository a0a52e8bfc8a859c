"""Write openapi.json and its pages: `python -m tools.reference.openapi docs/reference`. Tests compare them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delayq.api.openapi import ANSWERS, ENUMS, EVERYWHERE, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Schema = Mapping[str, Any]

BY_ID: Final = "ById"
"""What ends the name of an operation whose ID is in the query."""
MADE: Final = (
    "<!-- Made by `python -m tools.reference.openapi docs/reference`; change the routes instead. -->"
)
OPERATIONS: Final = f"""\
# Operations of the HTTP API

{MADE}

Each operation of [openapi.json](openapi.json), by its `operationId`: generated clients name their functions so.
[The HTTP API](http.md) explains rights, errors and limits.
"""
BODIES: Final = f"""\
# Bodies of the HTTP API

{MADE}

The fields of the bodies that [operations](http-operations.md) take. All are optional, unless their row says "required".
"""
ANSWERS_OF: Final = f"""\
# Answers of the HTTP API

{MADE}

The fields of each answer of the [operations](http-operations.md). A field that is not in every answer is absent where
it does not apply.
"""


def text() -> str:
    """Return the text of openapi.json."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def pages() -> dict[str, str]:
    """Return each page's text by its file name."""
    made = document()
    schemas = made["components"]["schemas"]
    found = {
        "http-operations.md": [OPERATIONS, *_operations(made)],
        "http-bodies.md": [BODIES, *_bodies(schemas)],
        "http-answers.md": [ANSWERS_OF, *_answers(schemas)],
    }
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in found.items()}


def _operations(made: Schema) -> Iterator[str]:
    found = {
        each["operationId"]: (method.upper(), path, each)
        for path, methods in made["paths"].items()
        for method, each in methods.items()
    }
    yield "Each of them may answer with the errors " + ", ".join(f"`{each}`" for each in EVERYWHERE) + ".\n"
    for name, (method, path, each) in found.items():
        if not name.endswith(BY_ID):
            yield f"## {name}\n\n{each['summary']} {each['description']}\n"
            other = f"{name}{BY_ID}"
            beside = f", or `{method} {found[other][1]}?id=…` as `{other}`" if other in found else ""
            yield f"- `{method} {path}`{beside}"
            yield from _parts(each)
            yield ""


def _parts(operation: Schema) -> Iterator[str]:
    for each in operation["parameters"]:
        if each["in"] == "query":
            yield f"- `{each['name']}`: {_value(each['schema'])}. {each['description']}"
    if "requestBody" in operation:
        [content] = operation["requestBody"]["content"].values()
        optional = "" if operation["requestBody"]["required"] else "; it may be absent"
        yield f"- body: {_value(content['schema'])}{optional}"
    stored: dict[str, list[str]] = {}
    errors = []
    for status, each in operation["responses"].items():
        [content] = each["content"].values()
        if status == "default":
            found = [error.split() for error in each["description"].split(", ")]
            errors = [f"{status} `{kind}`" for status, kind in found if kind not in EVERYWHERE]
        else:
            stored.setdefault(_value(content["schema"]), []).append(status)
    answers = [f"{_or(statuses)} with {of}" for of, statuses in stored.items()]
    yield f"- answer: {'; '.join(answers)}"
    if errors:
        yield f"- errors: {', '.join(errors)}"


def _bodies(schemas: Schema) -> Iterator[str]:
    before: dict[str, Schema] = {}
    for name, schema in schemas.items():
        if name in ANSWERS or name in ENUMS:
            continue
        own = dict(schema["properties"])
        # The largest body that this one extends.
        bases = [(len(fields), base) for base, fields in before.items() if fields.items() < own.items()]
        base = max(bases, default=(0, ""))[1]
        yield f"## {name}\n\n{schema['description']}"
        if base:
            yield f"It has all fields of [{base}](#{base.lower()}), and these."
            own = {field: each for field, each in own.items() if field not in before[base]}
        before[name] = schema["properties"]
        yield "\n| field | value | meaning |\n|---|---|---|"
        needs = schema.get("required", ())
        for field, each in own.items():
            required = ", required" if field in needs else ""
            yield f"| `{field}` | {_value(each)}{required} | {each['description']} |"
        yield ""


def _answers(schemas: Schema) -> Iterator[str]:
    for name in ANSWERS:
        yield f"## {name}\n\n| field | value | meaning | in every answer |\n|---|---|---|---|"
        yield from _rows(schemas[name], "")
        yield ""


def _rows(schema: Schema, above: str) -> Iterator[str]:
    needs = schema.get("required", ())
    for field, each in schema["properties"].items():
        meaning = each.get("description", "")
        yield f"| `{above}{field}` | {_value(each)} | {meaning} | {'yes' if field in needs else ''} |"
        inside, mark = (each["items"], "[]") if each.get("type") == "array" else (each, "")
        if "properties" in inside:
            yield from _rows(inside, f"{above}{field}{mark}.")


def _value(schema: Schema) -> str:
    """Return what a value is, in words."""
    words = _kind(schema)
    return f"{words}, by default `{json.dumps(schema['default'])}`" if "default" in schema else words


def _kind(schema: Schema) -> str:  # noqa: PLR0911 -- one for each kind
    match schema:
        case {"$ref": path}:
            name = path.rpartition("/")[2]
            if name in ENUMS:
                return _or([f"`{each}`" for each in ENUMS[name]["enum"]])
            return f"[{name}]({'http-answers.md' if name in ANSWERS else 'http-bodies.md'}#{name.lower()})"
        case {"type": "array", "items": items}:
            return "a list of objects" if "properties" in items else f"a list: {_kind(items)}"
        case {"type": "object", "additionalProperties": {"type": _} as items}:
            return f"by name: {_kind(items)}"
        case {"type": "object"}:
            return "an object"
        case {"type": "integer", "minimum": low, "maximum": high}:
            return f"a whole number from {low:,} to {high:,}"
        case {"type": "string"}:
            return _text(schema)
        case _:
            return {"integer": "a whole number", "boolean": "true or false"}.get(
                schema.get("type", ""), "any JSON"
            )


def _or(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _text(schema: Schema) -> str:
    if schema.get("format") == "date-time":
        return "an instant, RFC 3339"
    if "contentEncoding" in schema:
        return "base64"
    return "a duration" if "examples" in schema else "text"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, content in {"openapi.json": text(), **pages()}.items():
        (folder / name).write_text(content)
