"""Render the pages of the document from the model: `python -m tools.reference.document docs/reference` writes them.

The sentences are those of the field declarations; a test checks that the pages are current.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delayq.contract.kinds import Dictionary, Listing
from delayq.contract.queue import DelayQueue
from delayq.contract.record import Section, declared, shape_of
from delayq.contract.schedule import DelaySchedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import DataclassInstance
    from delayq.contract.kinds import Kind
    from delayq.contract.record import Declared

MADE: Final = (
    "<!-- Made by `python -m tools.reference.document docs/reference`; change the model instead. -->"
)
INTRODUCTION: Final = f"""\
# The DelayQueue document

{MADE}

One document describes a queue. `kubectl apply` takes it, `delayq run` takes it, and the operator mounts it
into pods. This much is enough:

```yaml
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {{name: orders}}
spec:
  redis: {{standalone: {{host: redis}}}}
  handler: {{python: {{callable: "shop.orders:cancel_unpaid"}}}}
```

A field that is left out has its default. An unknown field is an error, and so is a value that does not fit;
`delayq validate` lists all of them. YAML is read as `kubectl` reads it: `1e3` is 1000, `0o17` is 15, `yes` is true, and
`12:30:00` is text. Put text that looks like a number or a word into quotes.
Numbers are whole, and a time has the unit that the name of its field ends in. What Kubernetes adds (`status`, columns,
rules as CEL) is in [crd](crd.md).

Secrets are never in the document. A field whose name ends in `Ref`, or an entry of `secretHeaders`, names a Secret or
ConfigMap of the namespace and a key in it, as in `{{name: redis-login, key: password}}`. Certificates and private keys
are PEM. The URL of a database is one of SQLAlchemy. Further sections have pages of their own:
"""


SCHEDULE: Final = f"""\
# The DelaySchedule document

{MADE}

When a task of a queue recurs, and the task: [run tasks on a schedule](../how-to/schedules.md) shows how to use it. The
rules for fields are those of the [DelayQueue document](document.md), and so is `metadata`.
"""


MOST_WORDS: Final = 20
_SENTENCES: Final = re.compile(r"(?<=[.!?]) (?=[A-Z])")


PAGES: Final = {
    "document-redis": ("spec.redis",),
    "document-delivery": ("spec.delivery", "spec.durability", "spec.recovery", "spec.guard"),
    "document-handler": ("spec.handler",),
    "document-processes": ("spec.scanner", "spec.worker", "spec.autoscaling", "spec.reaper"),
    "document-api": ("spec.api",),
}
"""File name to the sections on it, and in them; all others are on document.md."""


def pages() -> dict[str, str]:
    """Return each page's text by its file name: a heading and a table for every mapping of the document."""
    found = {"document": INTRODUCTION}
    for name, roots in PAGES.items():
        titles = ", ".join(f"`{root}`" for root in roots)
        found["document"] += f"\n- [{titles}]({name}.md)"
        found[name] = f"# {titles}\n\n{MADE}\n\nSections of the DelayQueue [document](document.md).\n"
    found["document"] += "\n"
    found["document-schedule"] = SCHEDULE + "".join(
        section for path, section in _sections(DelaySchedule, "", {}) if path != "metadata"
    )
    for path, section in _sections(DelayQueue, "", {}):
        found[_page(path)] += section
    return {f"{name}.md": text for name, text in found.items()}


def _page(path: str) -> str:
    """Return the page that has the section of a mapping."""
    return next((name for name, roots in PAGES.items() if path.startswith(roots)), "document")


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z ]", "", title.lower()).replace(" ", "-")


def _sections(
    record: type[DataclassInstance],
    path: str,
    seen: dict[type, str],
    *,
    base: type[DataclassInstance] | None = None,
    title: str = "",
) -> Iterator[tuple[str, str]]:
    """Yield the path and text of a mapping and of those in it. The fields of `base` are in the section `title`.

    A mapping that is the same as an earlier one, which is `seen` at another path, has a link to that.
    """
    if record in seen:
        first = seen[record]
        page = "" if _page(first) == _page(path) else f"{_page(first)}.md"
        link = f"The fields are those of [{first}]({page}#{_anchor(first)})."
        yield path, "\n".join(["", f"## {path}", "", record.__doc__ or "", "", link, ""])
        return
    if declared(record):
        seen[record] = path
        yield path, "\n".join(["", *_heading(record, path), *_inherited(title), *_table(record, base), ""])
    inside: dict[str, type[DataclassInstance]] = {}
    for field in declared(record):
        inner, suffix = _inside(field.kind)
        if inner and not _is_reference(inner):
            inside[f"{path}.{field.name}{suffix}" if path else field.name + suffix] = inner
    shared: set[type] = set()
    for name, inner in inside.items():
        those = [each for each, other in inside.items() if other.__base__ is inner.__base__]
        common = inner.__base__ if len(those) > 1 and is_dataclass(inner.__base__) else None
        heading = ", ".join([those[0], *(each.rpartition(".")[2] for each in those[1:])]) if common else ""
        if common and common not in shared:
            shared.add(common)
            yield name, "\n".join(["", *_heading(common, heading), *_table(common), ""])
        yield from _sections(inner, name, seen, base=common, title=heading)


def _inherited(title: str) -> list[str]:
    return [f"It also takes the [common fields](#{_anchor(title)}).", ""] if title else []


def _is_reference(record: type[DataclassInstance]) -> bool:
    """Return whether a mapping is a name and a key, which the table of its parent says."""
    return [field.name for field in declared(record)] == ["name", "key"]


def _inside(kind: Kind) -> tuple[type[DataclassInstance] | None, str]:
    if isinstance(kind, Section):
        return kind.record, ""
    if isinstance(kind, Listing) and isinstance(kind.item, Section):
        return kind.item.record, "[]"
    if isinstance(kind, Dictionary) and isinstance(kind.value, Section):
        return kind.value.record, "{}"
    return None, ""


def _heading(record: type[DataclassInstance], path: str) -> Iterator[str]:
    yield f"## {path or 'The top'}"
    yield ""
    yield record.__doc__ or ""
    yield ""
    shape = shape_of(record)
    rules = [rule.message for rule in shape.rules]
    if shape.one_of and shape.one_of_message.removeprefix("expected ") not in (record.__doc__ or ""):
        rules.insert(0, shape.one_of_message)
    yield from (f"* Rule: {rule}." for rule in rules)
    yield from [""][: len(rules)]


def _table(record: type[DataclassInstance], base: type[DataclassInstance] | None = None) -> Iterator[str]:
    """Yield the rows of a mapping's fields, without those of `base`."""
    left_out = {field.name for field in declared(base)} if base else set()
    yield "| Field | Takes | Default | Meaning |"
    yield "|---|---|---|---|"
    below = []
    for field in [each for each in declared(record) if each.name not in left_out]:
        takes, more_taken = _fitting([_short(part) for part in _takes(field.kind)], "; ")
        meaning, more_meant = _fitting(_SENTENCES.split(field.doc), " ")
        yield f"| `{field.name}` | {_cell(takes)} | {_default(field)} | {_cell(meaning)} |"
        more = [
            each for each in (more_taken and f"{more_taken[0].upper()}{more_taken[1:]}.", more_meant) if each
        ]
        below += [f"* `{field.name}`: {_cell(' '.join(more))}"] if more else []
    yield from ["", *below] if below else []


def _short(taken: str) -> str:
    """Return what a field takes without what the introduction says of all numbers."""
    return taken.replace("a whole number from ", "").replace("a whole number", "a number")


def _takes(kind: Kind) -> list[str]:
    if isinstance(kind, Dictionary):
        return [kind.expected, kind.name.expected, f"each {kind.value.expected}"]
    if isinstance(kind, Listing) and not isinstance(kind.item, Section):
        return [kind.expected, f"each {kind.item.expected}"]
    if isinstance(kind, Section) and _is_reference(kind.record):
        _, key = declared(kind.record)
        return [f'name and key (default "{key.default}")']
    return [kind.expected]


def _fitting(parts: list[str], between: str) -> tuple[str, str]:
    """Return the first parts, as many as a cell may have words, and the others, which stand below the table."""
    fit = 1
    while fit < len(parts) and len(between.join(parts[: fit + 1]).split()) <= MOST_WORDS:
        fit += 1
    return between.join(parts[:fit]), between.join(parts[fit:])


def _default(field: Declared) -> str:
    if field.required:
        return "required"
    if field.default is None:
        return "absent"
    if isinstance(field.kind, Section) and field.default == field.kind.record():
        return "its defaults"
    return f"`{json.dumps(field.kind.write(field.default))}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*").replace("_", r"\_").replace("`", r"\`")


if __name__ == "__main__":
    for file, text in pages().items():
        (Path(sys.argv[1]) / file).write_text(text)
