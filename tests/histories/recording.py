"""What processes recorded, read back, and one history for each task from it."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.histories.history import FAR, Op, Record
from tests.histories.split import Split

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def offset_ms() -> float:
    """By how much Redis' clock, which is this machine's, is ahead of the monotonic one."""
    return (time.time_ns() - time.monotonic_ns()) / 1e6


@dataclass
class Recording:
    """All that was recorded of a run, in order of invocation."""

    records: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path, offset: float) -> Self:
        found = dict[tuple[str, int], Record]()
        for path in directory.glob("*.jsonl"):
            for kind, number, at_ns, *said in _lines(path):
                at = at_ns / 1e6 + offset
                if kind == "call":
                    verb, named, rest = said
                    found[path.name, number] = Record(number, verb, at, named, rest)
                    continue
                record = found[path.name, number]
                record.outcome = kind
                if kind != "unknown":
                    record.hi, record.reply = at, said[0]
        records = sorted(found.values(), key=lambda record: record.lo)
        for number, record in enumerate(records):
            record.number = number
        return cls(records)

    @property
    def outcomes(self) -> Counter[tuple[str, str]]:
        """How often each verb had each outcome."""
        return Counter((record.verb, record.outcome) for record in self.records)

    def histories(self) -> dict[str, list[Op]]:
        """The operations on each task."""
        split, found = Split(self.records), defaultdict[str, list[Op]](list)
        for record in self.records:
            if record.outcome != "failed":
                for task_id, op in split.parts(record):
                    found[task_id].append(op)
        return {task_id: _possible(ops) for task_id, ops in found.items()}


def _lines(path: Path) -> Iterator[Any]:
    """The lines of a process; a call whose line was cut, as the process was killed, was not sent."""
    *whole, _cut = path.read_bytes().split(b"\n")
    yield from map(json.loads, whole)


def _possible(ops: list[Op]) -> list[Op]:
    """Without lost operations that had ended before anything can have stored the task."""
    stored = min((op.lo for op in ops if op.verb == "schedule"), default=FAR)
    return [op for op in ops if op.required or op.hi >= stored]
