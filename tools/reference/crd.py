"""Render the pages of crds/: `python -m tools.reference.crd docs/reference`.

Not here: the fields of spec. They are the document's, and docs/reference/document*.md has them from the model, as the
CRDs have.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from delayq.cli.validate import crd_text

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

MADE = "<!-- Made by `python -m tools.reference.crd docs/reference`; change the model instead, see tools/crds. -->"
QUEUE = """
The DelayQueue in Kubernetes. The fields of `spec` are those of the [document](document.md): the same file
works with `kubectl apply`, `delayq run` and `delayq validate`. The API server checks types, bounds and the rules below
before anything is stored, and stores the defaults; there is no webhook. On a cluster, `kubectl explain delayqueue.spec`
tells the same, and `delayq crd` prints the CustomResourceDefinitions.
"""
SCHEDULE = """
The DelaySchedule in Kubernetes. The fields of `spec` are those of the [document](document-schedule.md): the same file
works with `kubectl apply`, `delayq run` and `delayq cron`. The API server checks types, bounds and the rules
below. What it cannot check, such as the name of a time zone, is a reason of the condition `Accepted`.
[Recurring tasks](../how-to/schedules.md) shows how to use it.
"""
STORED = """
A default is stored where a field is left out, except inside a choice: it would stand beside what a later apply
chooses. What is absent there is decided when the document is read.
"""
QUEUE_STATUS = """
The [operator](operator.md) writes it through the subresource `status`, and stores nothing while nothing changes. That
page has every condition with its reasons; the live numbers are [metrics](metrics.md).
"""
SCHEDULE_STATUS = """
The scanner that leads the shard of the schedule writes it when it has applied a change, and updates the runs every ten
seconds, less often where there are more than 1,000 schedules. [Conditions](conditions.md#delayschedule) has the
reasons.
"""
CHOICE: Final = "expected exactly one of"
"""How the message of a choice begins; it says all that its rule does."""
PAGES: Final = {
    "crd.md": ("delayqueue.yaml", QUEUE, QUEUE_STATUS),
    "crd-schedule.md": ("delayschedule.yaml", SCHEDULE, SCHEDULE_STATUS),
}


def render(page: str) -> str:
    """Return one of PAGES."""
    file, introduction, about_status = PAGES[page]
    crd = yaml.safe_load(crd_text(file))
    version = crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    status = schema["properties"]["status"]
    parts = [_names(crd), _columns(crd), _scale(version), _rules(schema), _status(status, about_status)]
    heading = f"# The {crd['spec']['names']['kind']} resource\n\n{MADE}\n"
    return heading + introduction + "".join(f"{line}\n" for part in parts for line in part)


def _names(crd: Schema) -> Iterator[str]:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    yield "\n## Names\n\n| | |\n|---|---|"
    yield f"| apiVersion | `{crd['spec']['group']}/{version['name']}` |"
    yield f"| kind | `{names['kind']}`, {crd['spec']['scope'].lower()} |"
    yield f"| for kubectl | `{names['plural']}`, `{names['singular']}`, `{'`, `'.join(names['shortNames'])}` |"
    yield f"| category | `{'`, `'.join(names['categories'])}` |"
    yield f"| subresources | `{'`, `'.join(version['subresources'])}` |"


def _columns(crd: Schema) -> Iterator[str]:
    short = crd["spec"]["names"]["shortNames"][0]
    yield f"\n## Columns\n\nOf `kubectl get {short}`; those marked wide need `-o wide`.\n"
    yield "| column | shows | from |\n|---|---|---|"
    for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]:
        wide = " (wide)" if column.get("priority") else ""
        yield f"| {column['name']}{wide} | {column['description']} | `{column['jsonPath']}` |"


def _scale(version: Schema) -> Iterator[str]:
    if "scale" not in version["subresources"]:
        return
    yield "\n## Scale\n"
    yield "For `kubectl scale`, and for an HPA or KEDA with `autoscaling.mode: External`.\n"
    yield "| of the subresource | is |\n|---|---|"
    for name, path in version["subresources"]["scale"].items():
        yield f"| `{name}` | `{path}` |"


def _rules(schema: Schema) -> Iterator[str]:
    yield "\n## Rules\n\nWhat fields must satisfy together, as CEL. A refused apply names the path and the sentence.\n"
    same: dict[tuple[str, str], list[str]] = {}  # message and rule to the paths
    for path, rule in _validations(schema, ""):
        same.setdefault((rule["message"], rule["rule"]), []).append(f"`{path or 'the whole'}`")
    for (message, expression), paths in same.items():
        code = "" if message.startswith(CHOICE) else f"\n  ```text\n  {expression}\n  ```"
        yield f"- {', '.join(paths)}: {message}{code}"
    yield STORED.rstrip("\n")


def _validations(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield from ((path, rule) for rule in schema.get("x-kubernetes-validations", ()))
    for name, inner in schema.get("properties", {}).items():
        yield from _validations(inner, f"{path}.{name}" if path else name)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from _validations(schema[key], path + suffix)


def _status(schema: Schema, about: str) -> Iterator[str]:
    yield f"\n## Status\n\n{schema['description']}"
    yield about.rstrip("\n")
    yield from _fields(schema, "status")


def _fields(schema: Schema, path: str) -> Iterator[str]:
    inside: list[tuple[str, Schema]] = []
    yield f"\n### {path}\n"
    if path != "status":
        yield f"{schema['description']}\n"
    yield "| Field | Type | Meaning |\n|---|---|---|"
    for name, field in schema["properties"].items():
        yield f"| `{name}` | {_type(field)} | {field['description']} |"
        item = field.get("items", field)
        if "properties" in item:
            inside.append((f"{path}.{name}{'[]' if 'items' in field else ''}", item))
    for inner, field in inside:
        yield from _fields(field, inner)


def _type(field: Schema) -> str:
    if field["type"] == "array":
        keys = ", ".join(f"`{key}`" for key in field.get("x-kubernetes-list-map-keys", ()))
        return f"list of at most {field['maxItems']}" + (f", one per {keys}" if keys else "")
    if "enum" in field:
        return f"one of {', '.join(field['enum'])}"
    if field.get("format") == "date-time":
        return "time"
    if field["type"] == "string":
        return f"text of at most {field['maxLength']} characters"
    if field["type"] == "integer":
        return f"whole number, {field['minimum']} or more ({field['format']})"
    return "mapping"


if __name__ == "__main__":
    for name in PAGES:
        (Path(sys.argv[1]) / name).write_text(render(name))
