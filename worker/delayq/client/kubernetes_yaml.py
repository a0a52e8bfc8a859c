"""Reads YAML and JSON as kubectl does, so that a document means the same without Kubernetes. PyYAML parses it.

Unlike kubectl, it refuses keys that are given twice or are fractions, and aliases that expand to too many values.
delayq.contract.scalars has the values of numbers and words.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import TYPE_CHECKING, Final

import yaml

from delayq.contract import scalars
from delayq.contract.kinds import plain as is_unicode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract.scalars import Scalar

MAX_ALIASED: Final = 10_000  # additional values that aliases of a document may expand to
TAG: Final = "tag:yaml.org,2002:"
PLAIN: Final = "plain"  # the tag of a scalar that has neither quotes nor a tag
TYPES: Final[dict[str, tuple[type, ...]]] = {
    f"{TAG}bool": (bool,),
    f"{TAG}int": (int,),
    f"{TAG}float": (int, float),
    f"{TAG}null": (type(None),),
}
DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")


def load_all(text: bytes) -> list[object]:
    """Return the documents of a text. ValueError or YAMLError if it is neither YAML nor JSON."""
    if text.lstrip()[:1] == b"{":
        try:
            return [_json(text)]
        except ValueError:
            pass  # YAML can begin with a brace, too
    return [_document(node) for node in yaml.compose_all(text, _Loader)]


def line_of(text: bytes, kind: str, name: str, field: str) -> int:
    """Return the line of a field of a document, or of the innermost part of its path that is written; 0: no document.

    Documents in a List are not found.
    """
    for node in yaml.compose_all(text, _Loader):
        if (_inner(node, "kind")[0].value, _inner(node, "metadata.name")[0].value) == (kind, name):
            return _inner(node, field)[1]
    return 0


def _inner(node: yaml.Node, path: str) -> tuple[yaml.Node, int]:
    """Return the node at a path, or the innermost on the way to it, and the line of its key."""
    line = node.start_mark.line
    for word in path.split("."):
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        found = next((pair for pair in pairs if pair[0].value == word.partition("[")[0]), None)
        if found is None:
            break
        key, node = found
        line = key.start_mark.line
    return node, line + 1


def _json(text: bytes) -> object:
    found: object = json.loads(
        text.decode(), object_pairs_hook=_once, parse_float=_number, parse_int=_number, parse_constant=float
    )
    json.dumps(
        found, ensure_ascii=False, allow_nan=False
    ).encode()  # no half of a surrogate pair, no infinity
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _number(text: str) -> int | float:
    return scalars.from_json(int(text) if text.lstrip("-").isdigit() else float(text))


class _Loader(yaml.SafeLoader):
    """A parser that leaves the value of a plain scalar to delayq."""

    def resolve(self, kind: type[yaml.Node], _: object, implicit: object) -> str:
        if kind is yaml.ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            return PLAIN
        return {yaml.ScalarNode: f"{TAG}str", yaml.SequenceNode: f"{TAG}seq"}.get(kind, f"{TAG}map")


def _document(node: yaml.Node) -> object:
    """Limit the expansion of aliases and merge keys: a few bytes could use much memory and time."""
    sizes: dict[int, int] = {}
    if _written_out(node, sizes) - len(sizes) > MAX_ALIASED:
        raise _error(f"its aliases stand for more than {MAX_ALIASED:,} values; write them out", node)
    return _value(node)


def _written_out(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the number of nodes after the expansion of aliases; `sizes` is by id()."""
    if (known := sizes.get(id(node))) is not None:
        if not known:
            raise _error("an alias refers to itself", node)
        return known
    sizes[id(node)] = 0  # until it is computed
    inner = [] if isinstance(node, yaml.ScalarNode) else node.value
    flat = [each for pair in inner for each in pair] if isinstance(node, yaml.MappingNode) else inner
    sizes[id(node)] = 1 + sum(_written_out(each, sizes) for each in flat)
    return sizes[id(node)]


def _value(node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(each) for each in node.value]
    value = _scalar(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if not math.isfinite(value):
        raise _error(f"expected a number that JSON has, got {node.value}", node)
    return scalars.from_json(value)


def _mapping(node: yaml.MappingNode) -> dict[str, object]:
    found: dict[str, object] = {}
    given = set[str]()
    for key, value in node.value:
        if _is_merge(key):
            for each in _merged(value):
                found |= _mapping(each)
            continue
        name = _key(key)
        if name in given:
            raise _error(f"{name} is given twice", node)
        given.add(name)
        found[name] = _value(value)
    return found


def _is_merge(key: yaml.Node) -> bool:
    return key.tag == f"{TAG}merge" or (key.tag == PLAIN and key.value == "<<")


def _merged(value: yaml.Node) -> Iterator[yaml.MappingNode]:
    """Yield the mappings of a merge key, those that win last."""
    for each in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
        if not isinstance(each, yaml.MappingNode):
            raise _error("expected a mapping, or a list of mappings, to merge", each)
        yield each


def _key(node: yaml.Node) -> str:
    value = _scalar(node) if isinstance(node, yaml.ScalarNode) else None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) or (isinstance(value, int) and scalars.from_json(value) == value):
        return str(value)
    raise _error("expected a key that is text; quote it", node)


def _scalar(node: yaml.Node) -> Scalar:
    tag, text = node.tag, str(node.value)
    if not is_unicode(text):
        raise _error("half of a surrogate pair is no character", node)
    if tag == f"{TAG}binary":
        return _binary(node)
    value = scalars.plain(text) if tag == PLAIN or tag in TYPES else text
    wrong_date = tag == f"{TAG}timestamp" and not DATE.fullmatch(text)
    if wrong_date or (tag in TYPES and type(value) not in TYPES[tag]):
        raise _error(f"not a value of {tag}", node)
    return value


def _binary(node: yaml.Node) -> str:
    try:
        return base64.b64decode(node.value).decode()
    except ValueError as error:
        raise _error("expected base64 of UTF-8 text", node) from error


def _error(text: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, text, node.start_mark)
