"""Reads DelayQueue and DelaySchedule documents from files. delayq.contract parses them and has the defaults.

Each document is parsed by its kind, and so is each item of a List, as kubectl prints them. Documents of other projects
are ignored. kubernetes_yaml.py reads YAML and JSON.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import yaml

from delayq.client.kubernetes_yaml import line_of, load_all
from delayq.contract import DelayQueue, Problem, SpecError, parse
from delayq.contract.document import parse_schedule
from delayq.contract.files import CONFIG_FILE
from delayq.contract.queue import GROUP
from delayq.contract.queue import KIND as QUEUE
from delayq.contract.schedule import KIND as SCHEDULE
from delayq.contract.schedule import DelaySchedule, not_allowed
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MAX_BYTES: Final = 1 << 20  # Kubernetes refuses larger objects too
PARSERS: Final[Mapping[str, Callable[[Mapping[str, object]], DelayQueue | DelaySchedule]]] = {
    QUEUE: parse,
    SCHEDULE: parse_schedule,
}


class Wrong(NamedTuple):
    """A problem of a file, and where it is."""

    where: str  # `queue.yaml`, or `queue.yaml, document 2`
    problem: Problem
    line: int = 0  # 0: unknown

    def __str__(self) -> str:
        """Return one line: `queue.yaml, document 2, line 6: spec.…: expected …`."""
        place = ", ".join(filter(None, (self.where, f"line {self.line}" if self.line else "")))
        return ": ".join(filter(None, (place, self.problem.path, self.problem.message)))


class InvalidFields(InvalidDocument):
    """Fields of documents are not valid; the message has a line for each."""

    def __init__(self, *wrong: Wrong) -> None:
        """`wrong` is not empty."""
        super().__init__("\n".join(map(str, wrong)))
        self.wrong = wrong


class Document(NamedTuple):
    """A DelayQueue and where it is written."""

    path: str | Path
    name: str  # `queue.yaml`, or `queues.yaml, document 2` if the file has several
    queue: DelayQueue


class Documents(NamedTuple):
    """The documents of some files."""

    queues: list[Document]
    schedules: list[tuple[str, DelaySchedule]]  # and where each is written

    def by_queue(self) -> dict[str, list[tuple[str, DelaySchedule]]]:
        """Return the schedules by the name of the document in their queueRef.

        InvalidDocument if there is none of that name, if it accepts none, or if a name is used twice.
        """
        found: dict[str, list[tuple[str, DelaySchedule]]] = {
            each.queue.metadata.name: [] for each in self.queues
        }
        accepting = {
            each.queue.metadata.name for each in self.queues if each.queue.spec.schedules is not None
        }
        seen: dict[tuple[str, str], str] = {}
        for where, schedule in self.schedules:
            name, queue = schedule.metadata.name, schedule.spec.queue_ref.name
            if queue not in found:
                there = ", ".join(found)
                problem = Problem("spec.queueRef.name", f"expected one of {there}, got {queue}")
                raise InvalidFields(Wrong(where, problem))
            if queue not in accepting:
                raise InvalidFields(Wrong(where, Problem("spec.queueRef.name", not_allowed(queue))))
            if (queue, name) in seen:
                raise InvalidDocument(
                    f"{where}: DelaySchedule {name} is in {seen[queue, name]} too; names must differ"
                )
            seen[queue, name] = where
            found[queue].append((where, schedule))
        return found


def read(path: str | Path, queue: str | None = None) -> DelayQueue:
    """Return the one DelayQueue of a file, or that of this queue; InvalidDocument names everything wrong with it."""
    found = parse_all(text_of(path), path, [QUEUE]).queues
    return _one(found if queue is None else chosen(found, [queue]), str(path))


def chosen(documents: Sequence[Document], queues: Sequence[str]) -> list[Document]:
    """Return the documents of these queues, of all without a name; InvalidDocument if one is missing."""
    there = {each.queue.queue: each for each in documents}
    for queue in queues:
        if queue not in there:
            where = ", ".join(dict.fromkeys(str(each.path) for each in documents))
            raise InvalidDocument(
                f"{where}: expected a DelayQueue of queue {queue}, found {', '.join(there)}"
            )
    return [there[queue] for queue in queues or there]


def read_all(paths: Iterable[str | Path]) -> list[Document]:
    """Return the DelayQueues of files, at least one of each file; InvalidDocument names file and document."""
    return _distinct([each for path in paths for each in parse_all(text_of(path), path, [QUEUE]).queues])


def read_files(paths: Sequence[str | Path]) -> Documents:
    """Return the DelayQueues and DelaySchedules of files, one of either kind in each, and one queue in all."""
    parts = [parse_all(text_of(path), path) for path in paths]
    queues = _distinct([each for part in parts for each in part.queues])
    if not queues:
        raise _none_of([QUEUE], ", ".join(map(str, paths)), [SCHEDULE])
    return Documents(queues, [each for part in parts for each in part.schedules])


def read_schedules(path: str | Path) -> list[DelaySchedule]:
    """Return the DelaySchedules of a file, at least one; InvalidDocument names the file and everything wrong."""
    return [schedule for _, schedule in parse_all(text_of(path), path, [SCHEDULE]).schedules]


def parse_text(text: bytes, name: str) -> DelayQueue:
    """Return the one DelayQueue in a YAML text; other kinds are ignored."""
    return _one(parse_all(text, name, [QUEUE]).queues, name)


def _one(found: Sequence[Document], name: str) -> DelayQueue:
    first, *others = found
    if others:
        names = ", ".join(each.queue.queue for each in found)
        raise InvalidDocument(
            f"{name}: expected one document of kind {QUEUE}, found {len(found)}; choose a queue by its name: {names}"
        )
    return first.queue


def parse_all(text: bytes, path: str | Path, kinds: Sequence[str] = tuple(PARSERS)) -> Documents:
    """Return the documents of these kinds in a YAML text, at least one; others are ignored."""
    there = list(_documents(text, str(path)))
    found = [each for each in there if each.kind in kinds]
    if not found:
        raise _none_of(kinds, str(path), [each.kind for each in there])
    if sum(each.kind == QUEUE for each in found) == 1:
        found = [each._replace(where=str(path)) if each.kind == QUEUE else each for each in found]
    parsed = _parsed(found)
    return Documents(
        _distinct([Document(path, where, each) for where, each in parsed if isinstance(each, DelayQueue)]),
        [(where, each) for where, each in parsed if isinstance(each, DelaySchedule)],
    )


def named(error: InvalidDocument, document: Document) -> InvalidDocument:
    """Return the error with its place in the file in front, if it is one of a field: `queue.yaml, line 6: spec.…`."""
    wrong = located(error, document)
    return InvalidFields(wrong) if wrong.problem.path else error


def located(error: InvalidDocument, document: Document) -> Wrong:
    """Return an error of a document with its field, and the line of that, if it is one of a field."""
    field, colon, message = str(error).partition(": ")
    if not colon or not field.startswith("spec."):
        return Wrong(document.name, Problem("", str(error)))
    try:
        line = line_of(text_of(document.path), QUEUE, document.queue.metadata.name, field)
    except (InvalidDocument, yaml.YAMLError):  # it has changed since it was read
        line = 0
    return Wrong(document.name, Problem(field, message), line)


def text_of(path: str | Path) -> bytes:
    """Read a file, or raise InvalidDocument."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        there = {each.stem: each for each in Path(name).parent.glob("*.y*ml")}
        hint = "".join(
            f"; did you mean {there[near]}?" for near in get_close_matches(Path(name).stem, there, 1)
        )
        if name == CONFIG_FILE:
            hint = ": no document is mounted here; name one"
        raise InvalidDocument(f"{name}: {error.strerror}{hint}") from error
    except OSError as error:
        raise InvalidDocument(f"{name}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise InvalidDocument(f"{name}: expected a document of at most {MAX_BYTES:,} bytes")
    return text


class _Found(NamedTuple):
    where: str
    kind: str
    document: object


def _documents(text: bytes, name: str) -> Iterator[_Found]:
    """Yield the documents of a YAML text, and the items of Lists; `where` counts from 1 on."""
    try:
        loaded = [(number, each) for number, each in enumerate(load_all(text), 1) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # invalid UTF-8
        quote = (
            ""
            if "an alias" not in str(error)
            else '; quote a value that begins with *, as in cron: "* 3 * * *"'
        )
        raise InvalidDocument(f"{name}: not YAML: {' '.join(str(error).split())[:300]}{quote}") from error
    for number, document in loaded:
        where = f"{name}, document {number}" if len(loaded) > 1 else name
        kind = _kind(document, alone=len(loaded) == 1)
        items = document.get("items") if isinstance(document, dict) and kind.endswith("List") else None
        if isinstance(items, list):
            for nth, each in enumerate(items, 1):
                yield _Found(f"{where}, item {nth}", _kind(each, alone=False), each)
        else:
            yield _Found(where, kind, document)


def _kind(document: object, *, alone: bool) -> str:
    """Return the kind of a document. A misspelt one of delayq is read as the nearest, and so is one without a kind."""
    fields = document if isinstance(document, dict) else {}
    kind = str(fields.get("kind"))
    ours = str(fields.get("apiVersion")).startswith(f"{GROUP}/") or (alone and "kind" not in fields)
    if kind in PARSERS or kind.endswith("List") or not ours:
        return kind
    return [*get_close_matches(kind, PARSERS, 1), QUEUE][0]


def _none_of(kinds: Sequence[str], path: str, there: Sequence[str]) -> InvalidDocument:
    found = ", ".join(dict.fromkeys(there)) or "none"
    return InvalidDocument(f"{path}: expected a document of kind {' or '.join(kinds)}, found {found}")


def _parsed(documents: Iterable[_Found]) -> list[tuple[str, DelayQueue | DelaySchedule]]:
    parsed: list[tuple[str, DelayQueue | DelaySchedule]] = []
    wrong: list[tuple[str, SpecError]] = []
    for where, kind, document in documents:
        try:
            parsed.append((where, PARSERS[kind](document)))  # type: ignore[arg-type] # the parser reports it
        except SpecError as error:
            wrong.append((where, error))
    if wrong:
        found = [Wrong(where, problem) for where, error in wrong for problem in error.problems]
        raise InvalidFields(*found) from (wrong[0][1] if len(wrong) == 1 else None)
    return parsed


def _distinct(documents: list[Document]) -> list[Document]:
    """Return DelayQueues whose names differ, because output and metrics name a queue only."""
    seen: dict[tuple[str | None, ...], Document] = {}
    for each in documents:
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
    return documents
