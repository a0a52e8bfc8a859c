"""Reads DelayQueue and DelaySchedule documents from YAML files. delayq.contract parses them and has the defaults."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import yaml

from delayq.contract import DelayQueue, SpecError, parse
from delayq.contract.document import parse_schedule
from delayq.contract.schedule import KIND as SCHEDULE
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq.contract.schedule import DelaySchedule

T = TypeVar("T")

MAX_BYTES = 1 << 20  # Kubernetes refuses larger objects too
MAX_ALIASED = 10_000  # additional values that aliases of a document may expand to
MAX_NUMBER = 100  # characters: of a number such as 1:59:59, PyYAML's time grows with the square of its length
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class Document(NamedTuple):
    """A DelayQueue and where it is written."""

    path: str | Path
    name: str  # `queue.yaml`, or `queues.yaml, document 2` if the file has several
    queue: DelayQueue


def read(path: str | Path) -> DelayQueue:
    """Return the one DelayQueue of a file; InvalidDocument names the file and everything wrong with it."""
    return parse_text(_text(path), str(path))


def read_all(paths: Iterable[str | Path]) -> list[Document]:
    """Return the DelayQueues of files, at least one of each file; InvalidDocument names file and document.

    Their names differ, because output and metrics name a queue only.
    """
    found: list[Document] = []
    for path in paths:
        found += [Document(path, *each) for each in parse_all(_text(path), str(path))]
    seen: dict[tuple[str | None, ...], Document] = {}
    for each in found:
        queue, meta = each.queue.queue, each.queue.metadata
        for key, what in (
            (
                (meta.namespace, meta.name),
                f"DelayQueue {'/'.join(filter(None, (meta.namespace, meta.name)))}",
            ),
            ((queue,), f"queue {queue}"),
        ):
            if key in seen:
                raise InvalidDocument(f"{each.name}: {what} is in {seen[key].name} too; names must differ")
            seen[key] = each
    return found


def read_schedules(path: str | Path) -> list[DelaySchedule]:
    """Return the DelaySchedules of a file, at least one; InvalidDocument names the file and everything wrong."""
    found = [schedule for _, schedule in _schedules(path)]
    if not found:
        raise InvalidDocument(f"{path}: expected a document of kind {SCHEDULE}, found none")
    return found


def schedules_of(documents: Iterable[Document]) -> dict[str, list[DelaySchedule]]:
    """Return the DelaySchedules in the files of these documents, by the name of the document in their queueRef.

    InvalidDocument if there is none of that name, or a name is used twice.
    """
    queues = {each.queue.metadata.name: each for each in documents}
    found: dict[str, list[DelaySchedule]] = {name: [] for name in queues}
    seen: dict[tuple[str, str], str] = {}
    for path in dict.fromkeys(each.path for each in queues.values()):
        for where, schedule in _schedules(path):
            name, queue = schedule.metadata.name, schedule.spec.queue_ref.name
            if queue not in found:
                there = ", ".join(queues)
                raise InvalidDocument(f"{where}: spec.queueRef.name: expected one of {there}, got {queue}")
            if (queue, name) in seen:
                raise InvalidDocument(
                    f"{where}: DelaySchedule {name} is in {seen[queue, name]} too; names must differ"
                )
            seen[queue, name] = where
            found[queue].append(schedule)
    return found


def _schedules(path: str | Path) -> list[tuple[str, DelaySchedule]]:
    """Return the DelaySchedules of a file, and where each is."""
    documents = _documents(_text(path), str(path))
    found = {number: each for number, each in documents.items() if _kind(each) == SCHEDULE}
    names = {number: f"{path}, document {number}" if len(documents) > 1 else str(path) for number in found}
    return [(names[number], _checked(parse_schedule, each, names[number])) for number, each in found.items()]


def named(error: InvalidDocument, name: str) -> InvalidDocument:
    """Return the error with the document's name in front, if it is one of a field."""
    return InvalidDocument(f"{name}: {error}") if str(error).startswith("spec.") else error


def _text(path: str | Path) -> bytes:
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidDocument(f"{name}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise InvalidDocument(f"{name}: expected a document of at most {MAX_BYTES:,} bytes")
    return text


class Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a duplicate key is an error, and so are aliases that expand to too many values.

    A time is text.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 -- PyYAML's
        first: [(tag, pattern) for tag, pattern in those if tag != "tag:yaml.org,2002:timestamp"]
        for first, those in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_document(self, node: yaml.Node) -> object:
        """Limit the expansion of aliases and merge keys: a few bytes could use much memory and time."""
        sizes: dict[int, int] = {}
        if _written_out(node, sizes) - len(sizes) > MAX_ALIASED:
            text = f"its aliases stand for more than {MAX_ALIASED:,} values; write them out"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:  # noqa: FBT001, FBT002 -- PyYAML's signature
        """Describe invalid values on which PyYAML fails, such as a number without digits."""
        if node.tag in NUMBERS and len(node.value) > MAX_NUMBER:
            text = f"expected a number of at most {MAX_NUMBER} characters"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
            text = f"not a value of {node.tag}"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 -- PyYAML's signature
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, times in keys.items():
            if times > 1 and key != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", node.start_mark)
        found: dict[object, object] = super().construct_mapping(node, deep)
        return found


def _written_out(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the number of nodes after the expansion of aliases; `sizes` is by id()."""
    if (known := sizes.get(id(node))) is not None:
        if not known:
            raise yaml.constructor.ConstructorError(None, None, "an alias refers to itself", node.start_mark)
        return known
    sizes[id(node)] = 0  # until it is computed
    inner = [] if isinstance(node, yaml.ScalarNode) else node.value
    flat = [each for pair in inner for each in pair] if isinstance(node, yaml.MappingNode) else inner
    sizes[id(node)] = 1 + sum(_written_out(each, sizes) for each in flat)
    return sizes[id(node)]


def parse_text(text: bytes, name: str) -> DelayQueue:
    """Return the one DelayQueue in a YAML text; other kinds are ignored."""
    queues = _queues(text, name)
    if len(queues) != 1:
        raise InvalidDocument(f"{name}: expected one document of kind DelayQueue, found {len(queues)}")
    [found] = queues.values()
    return _parsed(found, name)


def parse_all(text: bytes, name: str) -> list[tuple[str, DelayQueue]]:
    """Return all DelayQueues in a YAML text, at least one, and their names; other kinds are ignored."""
    queues = _queues(text, name)
    if not queues:
        raise InvalidDocument(f"{name}: expected a document of kind DelayQueue, found none")
    names = [f"{name}, document {number}" if len(queues) > 1 else name for number in queues]
    return [(each, _parsed(found, each)) for each, found in zip(names, queues.values(), strict=True)]


def _documents(text: bytes, name: str) -> dict[int, object]:
    """Return the documents of a YAML text by their number in it, from 1 on."""
    try:
        loaded = enumerate(yaml.load_all(text, Loader), 1)
        return {number: each for number, each in loaded if each is not None}
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # invalid UTF-8 or number
        raise InvalidDocument(f"{name}: not YAML: {' '.join(str(error).split())[:300]}") from error


def _kind(document: object) -> object:
    return document.get("kind") if isinstance(document, dict) else None


def _queues(text: bytes, name: str) -> dict[int, object]:
    """Return the DelayQueues of a YAML text by their number in it."""
    documents = _documents(text, name)
    queues = {number: each for number, each in documents.items() if _kind(each) == "DelayQueue"}
    # Of a single document, the parser reports the kind, and all other problems.
    return documents if not queues and len(documents) == 1 else queues


def _parsed(document: object, name: str) -> DelayQueue:
    return _checked(parse, document, name)


def _checked(parser: Callable[[Any], T], document: object, name: str) -> T:
    try:
        return parser(document)
    except SpecError as error:
        raise InvalidDocument("\n".join(f"{name}: {problem}" for problem in error.problems)) from error
