"""Cache of the DelaySchedules: which queue each names, and what its status says. Scanners apply them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq.kube.objects import name_of

from delayq_operator.base.names import Key
from delayq_operator.base.objects import mapping, mappings

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.kube.objects import Kind, Name, Object


@dataclass(frozen=True, slots=True)
class Schedule:
    """A DelaySchedule, as far as the operator needs it."""

    namespace: str
    name: str
    uid: str
    generation: int
    ready: tuple[str, str, int]
    """Status, reason and generation of its condition Ready; empty strings without one."""


class Schedules:
    """All DelaySchedules, by queue."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for a queue that has a schedule more or less."""
        self._of: dict[Key, dict[Name, Schedule]] = defaultdict(dict)
        self._queue: dict[Name, Key] = {}
        self._enqueue = enqueue

    def of(self, key: Key) -> list[Schedule]:
        """Return the schedules that name a queue, which may not exist."""
        return list(self._of.get(key, {}).values())

    def seen(self, _kind: Kind, body: Object) -> None:
        """Take a schedule; it may name another queue than before."""
        name, queue = name_of(body), mapping(mapping(body.get("spec")).get("queueRef")).get("name")
        key = Key(name[0], str(queue))
        before = self._of.get(key, {}).get(name)
        if self._queue.get(name, key) != key:
            self.gone(_kind, name)
        self._queue[name], self._of[key][name] = key, _schedule(body)
        now = self._of[key][name]
        if before is None or (before.generation, before.ready) != (now.generation, now.ready):
            self._enqueue(key)

    def gone(self, _kind: Kind, name: Name, *, ours: bool = False) -> None:  # noqa: ARG002 -- as Children has it
        """Drop a schedule."""
        key = self._queue.pop(name, None)
        if key is None:
            return
        del self._of[key][name]
        if not self._of[key]:
            del self._of[key]
        self._enqueue(key)


def _schedule(body: Object) -> Schedule:
    metadata, status = body["metadata"], mapping(body.get("status"))
    found: dict[str, Any] = next(
        (each for each in mappings(status.get("conditions")) if each.get("type") == "Ready"), {}
    )
    ready = found.get("status", ""), found.get("reason", ""), int(found.get("observedGeneration", 0))
    return Schedule(
        metadata["namespace"], metadata["name"], metadata["uid"], int(metadata["generation"]), ready
    )
