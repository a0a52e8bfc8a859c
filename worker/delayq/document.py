"""Reading a DelayQueue document from a YAML file. Parsing proper, and every default, is delayq.contract."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml

from delayq.contract import DelayQueue, SpecError, parse
from delayq.errors import InvalidDocument

MAX_BYTES = 1 << 20  # Kubernetes refuses larger objects too


def read(path: str | Path) -> DelayQueue:
    """Return the one DelayQueue of a file; InvalidDocument names the file and everything wrong with it."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidDocument(f"{name}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise InvalidDocument(f"{name}: expected a document of at most {MAX_BYTES:,} bytes")
    return parse_text(text, name)


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a key given twice is an error, not the last one's victory."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 -- PyYAML's signature
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, times in keys.items():
            if times > 1 and key != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", node.start_mark)
        found: dict[object, object] = super().construct_mapping(node, deep)
        return found


def parse_text(text: bytes, name: str) -> DelayQueue:
    """Return the one DelayQueue in a YAML text; other kinds beside it are passed over."""
    try:
        loaded = yaml.load_all(text, _Loader)
        documents = [each for each in loaded if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # no UTF-8, day, or number
        raise InvalidDocument(f"{name}: not YAML: {' '.join(str(error).split())[:300]}") from error
    queues = [each for each in documents if isinstance(each, dict) and each.get("kind") == "DelayQueue"]
    if not queues and len(documents) == 1:
        queues = documents  # the parser says what is wrong with its kind, and with all the rest
    if len(queues) != 1:
        raise InvalidDocument(f"{name}: expected one document of kind DelayQueue, found {len(queues)}")
    try:
        return parse(queues[0])
    except SpecError as error:
        raise InvalidDocument("\n".join(f"{name}: {problem}" for problem in error.problems)) from error
