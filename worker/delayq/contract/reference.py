"""Render docs/document.md from the model: `python -m delayq.contract.reference > docs/document.md`.

The sentences are those of the field declarations; a test checks that the page is current.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

from delayq.contract.kinds import Dictionary, Listing
from delayq.contract.queue import DelayQueue
from delayq.contract.record import Section, declared, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import DataclassInstance

    from delayq.contract.kinds import Kind
    from delayq.contract.record import Declared

INTRODUCTION: Final = """\
# The DelayQueue document

<!-- Made by `python -m delayq.contract.reference > docs/document.md`; change the model, not this page. -->

One document describes a queue. `kubectl apply` takes it, `delayq run` takes it, and the operator mounts it
into pods. This much is enough:

```yaml
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: redis}}
  handler: {python: {callable: "shop.orders:cancel_unpaid"}}
```

A field that is left out has its default. An unknown field is an error, and so is a value that does not fit;
`delayq validate` lists all of them. Times are whole numbers in the unit that the name ends in. Secrets are never in the
document: a field whose name ends in `Ref` names the Secret. What Kubernetes adds (`status`, columns, rules as CEL) is
in [crd](crd.md).
"""


def render() -> str:
    """Write the page: a heading and a table for every mapping of the document."""
    return INTRODUCTION + "".join(_sections(DelayQueue, ""))


def _sections(record: type[DataclassInstance], path: str) -> Iterator[str]:
    if declared(record):
        yield "\n".join(["", *_heading(record, path), *_table(record), ""])
    for field in declared(record):
        inner, suffix = _inside(field.kind)
        if inner:
            yield from _sections(inner, f"{path}.{field.name}{suffix}" if path else field.name + suffix)


def _inside(kind: Kind) -> tuple[type[DataclassInstance] | None, str]:
    if isinstance(kind, Section):
        return kind.record, ""
    if isinstance(kind, Listing) and isinstance(kind.item, Section):
        return kind.item.record, "[]"
    return None, ""


def _heading(record: type[DataclassInstance], path: str) -> Iterator[str]:
    yield f"## {path or 'The top'}"
    yield ""
    yield record.__doc__ or ""
    yield ""
    shape = shape_of(record)
    rules = [rule.message for rule in shape.rules]
    if shape.one_of:
        rules.insert(0, shape.one_of_message)
    yield from (f"* Rule: {rule}." for rule in rules)
    yield from [""][: len(rules)]


def _table(record: type[DataclassInstance]) -> Iterator[str]:
    yield "| Field | Takes | Default | Meaning |"
    yield "|---|---|---|---|"
    for field in declared(record):
        yield f"| `{field.name}` | {_cell(_takes(field.kind))} | {_default(field)} | {_cell(field.doc)} |"


def _takes(kind: Kind) -> str:
    if isinstance(kind, Dictionary):
        return f"{kind.expected}; {kind.name.expected}; each {kind.value.expected}"
    if isinstance(kind, Listing) and not isinstance(kind.item, Section):
        return f"{kind.expected}, each {kind.item.expected}"
    return kind.expected


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
    sys.stdout.write(render())
