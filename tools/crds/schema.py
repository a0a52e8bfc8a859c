"""The schema of a document: types, bounds, defaults, sentences and rules, as the model declares them.

Not here: pod templates (kubernetes_schema.py), and what the model of a document does not have: status.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delayq.contract.json_text import MOST_BYTES, MOST_LEVELS, JsonText
from delayq.contract.kinds import Choice, Dictionary, Flag, Listing, Portion, Text, Whole
from delayq.contract.kubernetes import KubernetesType
from delayq.contract.record import Section, camel, declared, shape_of

from tools.crds import kubernetes_schema

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from delayq.contract.kinds import Kind
    from delayq.contract.record import Declared, Shape

Schema = dict[str, Any]


def document(model: type[DataclassInstance], status: Schema) -> Schema:
    """Return the schema of a whole document."""
    made = _of_record(model)
    fields = {field.name: field for field in declared(model)}
    for name in ("apiVersion", "kind"):
        made["properties"][name] = {"description": fields[name].doc, "type": "string"}
    # Kubernetes allows no more than this of metadata, not even a description.
    names = {"name": made["properties"]["metadata"]["properties"]["name"]}
    made["properties"] |= {"metadata": {"type": "object", "properties": names}, "status": status}
    return {"description": model.__doc__, **made}


def _of_record(record: type[DataclassInstance]) -> Schema:
    fields, shape = declared(record), shape_of(record)
    required, rules = [field.name for field in fields if field.required], list(_rules(shape))
    return {
        "type": "object",
        **({"required": required} if required else {}),
        **({"x-kubernetes-map-type": "atomic"} if shape.atomic else {}),
        **({"x-kubernetes-validations": rules} if rules else {}),
        **({"properties": {field.name: _of_field(field) for field in fields}} if fields else {}),
    }


def _of_field(field: Declared) -> Schema:
    if isinstance(field.kind, KubernetesType):
        return kubernetes_schema.template(field.kind.type, field.doc)
    made = {"description": _explained(field), **_default(field), **of_kind(field.kind)}
    if field.immutable:
        rule = {"rule": "self == oldSelf", "message": f"{field.name} cannot be changed"}
        made["x-kubernetes-validations"] = [*made.get("x-kubernetes-validations", ()), rule]
    return made


def of_kind(kind: Kind) -> Schema:  # noqa: C901, PLR0911 - one for each kind
    """Return the schema of a kind."""
    match kind:
        case Whole(low, high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case Portion(low, high, pattern):
            limits = {"minimum": low, "maximum": high, "pattern": pattern}
            return {"x-kubernetes-int-or-string": True, **limits}
        case Text():
            return _of_text(kind)
        case Choice(options):
            return {"type": "string", "enum": list(options)}
        case Flag():
            return {"type": "boolean"}
        case JsonText():
            return {"type": "string", "maxLength": MOST_BYTES}
        case KubernetesType(kind_of):
            return kubernetes_schema.schema(kind_of)
        case Listing():
            return _of_listing(kind)
        case Dictionary():
            return _of_dictionary(kind)
        case Section(record):
            return _of_record(record)
        case _:
            raise AssertionError(kind)


def _of_text(kind: Text) -> Schema:
    return {
        "type": "string",
        **({"minLength": kind.min_length} if kind.min_length else {}),
        "maxLength": kind.max_length,
        **({"pattern": kind.pattern} if kind.pattern else {}),
    }


def _of_listing(kind: Listing) -> Schema:
    return {
        "type": "array",
        **({"minItems": kind.least} if kind.least else {}),
        "maxItems": kind.most,
        "x-kubernetes-list-type": "atomic",
        "items": _inside(kind.item),
    }


def _of_dictionary(kind: Dictionary) -> Schema:
    name = kind.name
    rule = f'self.all(name, size(name) <= {name.max_length} && name.matches("{name.pattern}"))'
    return {
        "type": "object",
        "maxProperties": kind.most,
        "x-kubernetes-validations": [{"rule": rule, "message": f"expected {name.expected}"}],
        "additionalProperties": _inside(kind.value),
    }


def _inside(kind: Kind) -> Schema:
    """Return the schema of an item or a value, which no field describes."""
    about = kind.record.__doc__ if isinstance(kind, Section) else _sentence(kind.expected)
    return {"description": about, **of_kind(kind)}


def _rules(shape: Shape) -> list[Schema]:
    rules = [(rule.message, rule.cel) for rule in shape.rules]
    if shape.one_of:
        members = ", ".join(f"has(self.{camel(option)})" for option in shape.one_of)
        rules.append((shape.one_of_message, f"[{members}].filter(given, given).size() == 1"))
    return [{"rule": cel, "message": message} for message, cel in (*rules, *shape.changes)]


def _default(field: Declared) -> Schema:
    """Return the default to store.

    worker.replicas has one, or nothing could read the scale subresource. A choice has none: a stored default that chose
    a member would stand beside the member that the user chooses later.
    """
    if field.required or field.default is None or isinstance(field.kind, Dictionary):
        return {}
    if isinstance(field.kind, Section):
        return {} if shape_of(field.kind.record).one_of else {"default": {}}
    return {"default": field.kind.write(field.default)}


def _explained(field: Declared) -> str:
    """Return the sentence of a field, its bounds and its default: `kubectl explain` shows no others."""
    sentences = [field.doc]
    if bounds := _bounds(field.kind):
        sentences.append(_sentence(bounds))
    if field.default is not None and not _is_section_of_defaults(field):
        sentences.append(f"Default: {json.dumps(field.kind.write(field.default))}.")
    return " ".join(sentences)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _is_section_of_defaults(field: Declared) -> bool:
    return isinstance(field.kind, Section) and field.default == field.kind.record()


def _bounds(kind: Kind) -> str:  # noqa: PLR0911 - one for each kind
    """Return what a value may measure; empty where `kubectl explain` shows it (enum) or nothing is measured."""
    match kind:
        case Whole(low, high):
            return f"from {low} to {high}"
        case Portion(low, high):
            return f"from {low} to {high}, or a percentage"
        case Text(max_length=most):
            return f"at most {most} characters"
        case JsonText():
            return f"at most {MOST_BYTES} bytes and {MOST_LEVELS} levels"
        case Listing(item=item, least=least, most=most):
            return f"{least} to {most} items" + _each(item)
        case Dictionary(value=value, most=most):
            return f"at most {most} entries" + _each(value)
        case _:
            return ""


def _each(kind: Kind) -> str:
    return f", each {bounds}" if (bounds := _bounds(kind)) else ""
