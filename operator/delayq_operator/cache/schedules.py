"""Cache of the DelaySchedules: which queue each names, and what its status says. Scanners apply them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq_operator.base.names import Key
from delayq_operator.base.objects import mapping, mappings
from delayq_operator.cache.groups import Groups

if TYPE_CHECKING:
    from delayq.kube.objects import Kind, Object


@dataclass(frozen=True, slots=True)
class Schedule:
    """A DelaySchedule, as far as the operator needs it."""

    namespace: str
    name: str
    uid: str
    generation: int
    ready: tuple[str, str, int]
    """Status, reason and generation of its condition Ready; empty strings without one."""

    @property
    def significant(self) -> object:
        return self.generation, self.ready


class Schedules(Groups[Schedule]):
    """All DelaySchedules, by queue, which may not exist."""

    def read(self, _kind: Kind, body: Object) -> tuple[Key, Schedule]:
        queue = mapping(mapping(body.get("spec")).get("queueRef")).get("name")
        return Key(body["metadata"]["namespace"], str(queue)), _schedule(body)


def _schedule(body: Object) -> Schedule:
    metadata, status = body["metadata"], mapping(body.get("status"))
    found: dict[str, Any] = next(
        (each for each in mappings(status.get("conditions")) if each.get("type") == "Ready"), {}
    )
    ready = found.get("status", ""), found.get("reason", ""), int(found.get("observedGeneration", 0))
    return Schedule(
        metadata["namespace"], metadata["name"], metadata["uid"], int(metadata["generation"]), ready
    )
