"""Reads DelayQueue and DelaySchedule documents from YAML files. delayq.contract parses them and has the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import yaml

from delayq.client.kubernetes_yaml import load_all
from delayq.contract import DelayQueue, SpecError, parse
from delayq.contract.document import parse_schedule
from delayq.contract.schedule import KIND as SCHEDULE
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq.contract.schedule import DelaySchedule

T = TypeVar("T")

MAX_BYTES = 1 << 20  # Kubernetes refuses larger objects too


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
        return {number: each for number, each in enumerate(load_all(text), 1) if each is not None}
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # invalid UTF-8
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
