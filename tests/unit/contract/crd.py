"""The walk over CRD and model: everything in which they differ, as sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from delayq.contract.freeform import Freeform, JsonValue
from delayq.contract.kinds import Choice, Dictionary, Flag, Listing, Portion, Text, Whole
from delayq.contract.pod_template import PodTemplate
from delayq.contract.queue import DelayQueue
from delayq.contract.record import Declared, Section, camel, declared, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract.kinds import Kind

Schema = dict[str, Any]

CRDS: Final = Path(__file__).parents[3] / "crds"
CRD: Schema = yaml.load((CRDS / "delayqueue.yaml").read_text(), yaml.CSafeLoader)
SCHEDULE_CRD: Schema = yaml.load((CRDS / "delayschedule.yaml").read_text(), yaml.CSafeLoader)


def root(crd: Schema) -> Schema:
    """The schema of the whole document."""
    found: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


ROOT: Schema = root(CRD)
SPEC: Schema = ROOT["properties"]["spec"]

TRANSITIONS: Final = {
    "spec.redis.keyPrefix": {"keyPrefix cannot be changed": ["self == oldSelf"]},
}
"""Rules about a change, which the model of one document cannot see: path -> message -> what the rule contains."""


def differences(crd: Schema, model: type) -> Iterator[str]:
    """Everything in which the two differ, below spec."""
    spec = next(field for field in declared(model) if field.name == "spec")
    yield from _differences("spec", spec.kind, root(crd)["properties"]["spec"], default={}, doc=spec.doc)


def every_rule() -> Iterator[str]:
    """The messages of all rules that the CRD expresses in CEL."""

    def walk(kind: Kind) -> Iterator[str]:
        yield from _rules(kind)
        for _, inner, *_ in _children(kind, {}):
            yield from walk(inner)

    yield from walk(Section(DelayQueue))


def _fragment(kind: Kind) -> Schema:  # noqa: C901, PLR0911 - one for each kind
    """The schema of a kind, without what is inside it."""
    match kind:
        case Whole(low, high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case Portion(low, high, pattern):
            limits = {"minimum": low, "maximum": high, "pattern": pattern}
            return {"x-kubernetes-int-or-string": True, **limits}
        case Text():
            limits = {
                "minLength": kind.min_length or None,
                "maxLength": kind.max_length,
                "pattern": kind.pattern,
            }
            return {"type": "string", **limits}
        case Choice(options):
            return {"type": "string", "enum": list(options)}
        case Flag():
            return {"type": "boolean"}
        case PodTemplate():
            return {"type": "object"}  # what is inside, tools/crd-templates.py writes
        case JsonValue():
            return {"x-kubernetes-preserve-unknown-fields": True}
        case Freeform():
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case Listing(least=least, most=most):
            limits = {"minItems": least or None, "maxItems": most, "x-kubernetes-list-type": "atomic"}
            return {"type": "array", **limits}
        case Dictionary(most=most):
            return {"type": "object", "maxProperties": most}
        case Section(record):
            required = [field.name for field in declared(record) if field.required]
            return {"type": "object", "required": required or None}
        case _:
            raise AssertionError(kind)


def _default(field: Declared) -> Schema:
    """The default of a field as the CRD should have it."""
    if field.required or field.default is None or isinstance(field.kind, Dictionary):
        return {}
    if isinstance(field.kind, Section):
        # A stored default that chose a member would stand beside the member that the user chooses later.
        return {} if shape_of(field.kind.record).one_of else {"default": {}}
    return {"default": field.kind.write(field.default)}


def _explained(field: Declared) -> str:
    """The description of a field: its sentence, bounds and default. `kubectl explain` shows no others."""
    told = [field.doc]
    if bounds := _bounds(field.kind):
        told.append(f"{bounds[0].upper()}{bounds[1:]}.")
    if field.default is not None and not _is_section_of_defaults(field):
        told.append(f"Default: {json.dumps(field.kind.write(field.default))}.")
    return " ".join(told)


def _is_section_of_defaults(field: Declared) -> bool:
    return isinstance(field.kind, Section) and field.default == field.kind.record()


def _bounds(kind: Kind) -> str:
    """What a value may measure; empty where `kubectl explain` shows it (enum) or there is nothing to measure."""
    match kind:
        case Whole(low, high):
            return f"from {low} to {high}"
        case Portion(low, high):
            return f"from {low} to {high}, or a percentage"
        case Text(max_length=most):
            return f"at most {most} characters"
        case Listing(item=item, least=least, most=most):
            return f"{least} to {most} items" + _each(item)
        case Dictionary(value=value, most=most):
            return f"at most {most} entries" + _each(value)
        case _:
            return ""


def _each(kind: Kind) -> str:
    return f", each {bounds}" if (bounds := _bounds(kind)) else ""


def _rules(kind: Kind) -> dict[str, list[str]]:
    """The rules a schema needs: message -> what the CEL expression must contain."""
    if isinstance(kind, Dictionary):
        name = kind.name
        return {
            f"expected {name.expected}": [
                f'name.matches("{name.pattern}")',
                f"size(name) <= {name.max_length}",
            ]
        }
    if not isinstance(kind, Section):
        return {}
    shape = shape_of(kind.record)
    needed = {rule.message: [f"self.{camel(name)}" for name in rule.reads] for rule in shape.rules}
    if shape.one_of:
        members = ", ".join(f"has(self.{camel(option)})" for option in shape.one_of)
        needed[shape.one_of_message] = [f"[{members}].filter(given, given).size() == 1"]
    return needed


def _children(kind: Kind, schema: Schema) -> Iterator[tuple[str, Kind, Schema, Schema, str | None]]:
    """What is inside: name, kind, schema, default, sentence."""
    match kind:
        case Section(record):
            for field in declared(record):
                inner = schema.get("properties", {}).get(field.name, {})
                yield field.name, field.kind, inner, _default(field), _explained(field)
        case Listing(item=item):
            doc = item.record.__doc__ if isinstance(item, Section) else None
            yield "[]", item, schema.get("items", {}), {}, doc
        case Dictionary(value=value):
            doc = value.record.__doc__ if isinstance(value, Section) else None
            yield "{}", value, schema.get("additionalProperties", {}), {}, doc
        case _:
            return


def _differences(path: str, kind: Kind, schema: Schema, *, default: Schema, doc: str | None) -> Iterator[str]:
    inside = {"description", "properties", "items", "additionalProperties", "x-kubernetes-validations"}
    found = {key: value for key, value in schema.items() if key not in inside}
    expected = {key: value for key, value in {**_fragment(kind), **default}.items() if value is not None}
    if json.dumps(found, sort_keys=True) != json.dumps(expected, sort_keys=True):  # as text, True is not 1
        yield f"{path}: CRD has {found}, the model has {expected}"
    if doc != schema.get("description", "") and (doc or "description" not in schema):
        yield f"{path}: CRD says {schema.get('description')!r}, the model says {doc!r}"
    names = [field.name for field in declared(kind.record)] if isinstance(kind, Section) else []
    if list(schema.get("properties", {})) != names and not isinstance(kind, PodTemplate):
        yield f"{path}: CRD has the fields {list(schema.get('properties', {}))}, the model has {names}"
    yield from _rule_differences(path, kind, schema)
    for name, inner, has, standard, sentence in _children(kind, schema):
        yield from _differences(f"{path}.{name}", inner, has, default=standard, doc=sentence)


def _rule_differences(path: str, kind: Kind, schema: Schema) -> Iterator[str]:
    """Rules that only one side has, and CEL that misses what the model's rule reads."""
    needed = {**_rules(kind), **TRANSITIONS.get(path, {})}
    has = {rule.get("message"): rule.get("rule", "") for rule in schema.get("x-kubernetes-validations", ())}
    if set(has) != set(needed):
        yield f"{path}: CRD has the rules {list(has)}, the model has {list(needed)}"
    for message, parts in needed.items():
        missing = [part for part in parts if part not in has.get(message, "")]
        if missing:
            yield f"{path}: the rule {message!r} does not contain {missing}"
