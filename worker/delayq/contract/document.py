"""Parses and renders DelayQueue and DelaySchedule documents, which come as YAML or from the API server.

Not here: reading files, YAML, or any other I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from delayq.contract.problems import Place, Problem, SpecError
from delayq.contract.queue import GROUP, VERSION, DelayQueue
from delayq.contract.record import Section, write_record
from delayq.contract.schedule import KIND, DelaySchedule


def parse(document: Mapping[str, object]) -> DelayQueue:
    """Read a whole document, or raise SpecError with everything that is wrong in it."""
    problems: list[Problem] = []
    queue = Section(DelayQueue).read(document, Place("", problems))
    if not isinstance(queue, DelayQueue):
        raise SpecError(tuple(problems))
    return queue


def parse_schedule(document: Mapping[str, object]) -> DelaySchedule:
    """Read a whole DelaySchedule, or raise SpecError; delayq.schedules checks what its expression means."""
    problems: list[Problem] = []
    schedule = Section(DelaySchedule).read(document, Place("", problems))
    if not isinstance(schedule, DelaySchedule):
        raise SpecError(tuple(problems))
    return schedule


def parse_schedule_spec(name: str, spec: object) -> DelaySchedule:
    """Read the spec of a DelaySchedule from the API server, or raise SpecError."""
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": {"name": name}}
    return parse_schedule({**head, "spec": spec})


def to_document(document: DelayQueue | DelaySchedule) -> dict[str, object]:
    """Render a document in full, every default written out, as plain dicts and lists."""
    return write_record(document)
