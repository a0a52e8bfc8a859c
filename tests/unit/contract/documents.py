"""Documents for tests: the least one, any valid one, and one with something wrong in it."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from delayq.contract.kinds import Choice, Dictionary, Flag, Listing, Portion, Text, Whole
from delayq.contract.kubernetes import PLAIN, KubernetesType, fields, item_of, patched, required
from delayq.contract.queue import Spec
from delayq.contract.record import Section, camel, declared, shape_of
from hypothesis import strategies as st

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from delayq.contract.kinds import Kind

Json: TypeAlias = Any
"""Any value of YAML."""

Document = dict[str, Any]

LEAST_SPEC: Document = {
    "redis": {"standalone": {"host": "redis"}},
    "handler": {"python": {"callable": "shop.orders:cancel"}},
}


def document(spec: object = None, /, **fields: object) -> Document:
    """The least document, with these fields of its spec instead."""
    return {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": "orders"},
        "spec": {**deepcopy(LEAST_SPEC), **fields} if spec is None else spec,
    }


def _text(kind: Text) -> st.SearchStrategy[str]:
    assert kind.pattern
    printable = st.characters(min_codepoint=32, max_codepoint=126)
    found = st.from_regex(kind.pattern, fullmatch=True, alphabet=printable)
    return found.filter(lambda text: kind.min_length <= len(text) <= kind.max_length)


PLAINS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text("abc", max_size=3),
    "int": st.sampled_from((0, -1, 2**63 - 1, -(2**63))),
    "bool": st.booleans(),
    "port": st.sampled_from((0, 8080, "http")),
    "amount": st.sampled_from((0, 1, "0.5", "100m", " .5e3")),
}


@cache
def of_kubernetes(kind: str) -> st.SearchStrategy[Any]:
    """Values of a type of Kubernetes: of a mapping, a few fields."""
    inner = item_of(kind)
    if kind.startswith("["):
        return st.lists(of_kubernetes(inner), max_size=2)
    if kind.startswith("{"):
        return st.dictionaries(st.text("abc", max_size=3), st.none() | of_kubernetes(inner), max_size=2)
    if kind in PLAIN:
        return PLAINS[kind]
    known, key = fields(kind), required().get(kind)
    needed = {} if key is None else {key: of_kubernetes(known[key])}

    def some(names: list[str]) -> st.SearchStrategy[Document]:
        optional = {name: st.none() | of_kubernetes(known[name]) for name in names if name != key}
        return st.fixed_dictionaries({**optional, **needed})

    few = st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True).flatmap(some)
    return few | few.map(lambda found: found | {"$patch": "delete"}) if kind in patched() else few


def values(kind: Kind) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind
    """Values that a kind accepts."""
    match kind:
        case Whole(low, high):
            return st.sampled_from((low, high)) | st.integers(low, high)
        case Portion(low, high):
            return st.integers(low, high) | st.sampled_from(("1%", "99%", "100%"))
        case Text():
            return _text(kind)
        case Choice(options):
            return st.sampled_from(options)
        case Flag():
            return st.booleans()
        case KubernetesType(of):
            return of_kubernetes(of)
        case Listing(item=item, least=least):
            return st.lists(values(item), min_size=least, max_size=least + 1)
        case Dictionary(name=name, value=value):
            return st.dictionaries(values(name), values(value), max_size=2)
        case Section(record):
            return mappings(record)
        case _:
            raise AssertionError(kind)


@cache
def mappings(record: type[DataclassInstance]) -> st.SearchStrategy[Document]:
    """Mappings that fit a record; its rules may still be broken."""
    kinds = {field.name: values(field.kind) for field in declared(record)}
    members = [camel(option) for option in shape_of(record).one_of]
    required = {field.name: kinds[field.name] for field in declared(record) if field.required}
    optional = {name: kind for name, kind in kinds.items() if name not in required and name not in members}
    if not members:
        return st.fixed_dictionaries(required, optional=optional)
    return st.one_of(
        *(st.fixed_dictionaries({**required, member: kinds[member]}, optional=optional) for member in members)
    )


specs = mappings(Spec)

GARBAGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 10**30, 0.5, 1.0, "", "many", "30s", "a b", "line\n", "é", "x" * 5000),
    *([], [None], [[]], [1], ["a"], {}, {"name": "a"}, {"name": "a", "key": "k"}, {"x": {}}),
)


def _mappings_in(tree: object) -> list[Document]:
    if isinstance(tree, dict):
        return [tree, *(found for item in tree.values() for found in _mappings_in(item))]
    if isinstance(tree, list):
        return [found for item in tree for found in _mappings_in(item)]
    return []


def _nearby(value: Json) -> list[Any]:
    """Values a step away from this one, which may be a step too far."""
    match value:
        case bool():
            return [int(value), str(value)]
        case int():
            return [value - 1, value + 1, -value, str(value), float(value) + 0.5]
        case str():
            return [
                value + " ",
                value + "\n",
                "-" + value,
                value + "." + value,
                value.upper(),
                value * 40,
                [value],
            ]
        case list():
            return [value * 2, value[1:], [*value, None], value * 101]
        case _:
            return [[value], None]


@st.composite
def disturbed_specs(draw: st.DrawFn) -> Document:
    """Specs with one or two things changed: mostly wrong, sometimes still right."""
    spec = deepcopy(draw(specs))
    for _ in range(draw(st.integers(1, 2))):
        places = _mappings_in(spec)
        leaves = [
            (place, key) for place in places for key, item in place.items() if not isinstance(item, dict)
        ]
        place, key = draw(st.sampled_from(leaves or [(spec, "zzz")]))
        match draw(st.sampled_from(["nearby", "nearby", "nearby", "garbage", "remove", "add"])):
            case "nearby":
                place[key] = draw(st.sampled_from(_nearby(place.get(key))))
            case "garbage":
                place[key] = deepcopy(draw(st.sampled_from(GARBAGE)))
            case "remove":
                place.pop(key, None)
            case _:
                added = draw(
                    st.sampled_from(["name", "key", "host", "exponential", "redlock", "exec", "zzz"])
                )
                draw(st.sampled_from(places))[added] = deepcopy(draw(st.sampled_from(GARBAGE)))
    return spec
