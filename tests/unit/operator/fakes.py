"""What unit tests put in the place of the API server and of the clock: just enough to count versions and break calls.

All that depends on a real API server is tested on one, in tests/cluster.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.kube.errors import Conflict, KubernetesError, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from delayq.kube.objects import Kind
    from delayq.kube.watching import Event

Object = dict[str, Any]


class Clock:
    """Stands for the module `time`."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@dataclass
class Objects:
    """An API server that keeps objects and their resourceVersions; with `broken`, it does not answer."""

    broken: KubernetesError | None = None
    writes: int = 0
    requests: int = 0
    _objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    _version: int = 0

    def hasty(self, _seconds: float) -> Objects:
        return self

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        self._answer()
        try:
            return deepcopy(self._objects[kind.kind, namespace, name])
        except KeyError:
            raise NotFound(404, "NotFound", name) from None

    async def create(self, kind: Kind, body: Object) -> Object:
        self._answer()
        if self._key(kind, body) in self._objects:
            raise Conflict(409, "AlreadyExists", body["metadata"]["name"])
        return self._store(kind, body)

    async def replace(self, kind: Kind, body: Object) -> Object:
        self._answer()
        there = self._objects.get(self._key(kind, body))
        if there is None:
            raise NotFound(404, "NotFound", body["metadata"]["name"])
        if there["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", body["metadata"]["name"])
        return self._store(kind, body)

    def _store(self, kind: Kind, body: Object) -> Object:
        self._version += 1
        self.writes += 1
        stored = deepcopy(body)
        stored["metadata"]["resourceVersion"] = str(self._version)
        self._objects[self._key(kind, body)] = stored
        return deepcopy(stored)

    def _answer(self) -> None:
        self.requests += 1
        if self.broken is not None:
            raise self.broken

    @staticmethod
    def _key(kind: Kind, body: Object) -> tuple[str, str, str]:
        return kind.kind, body["metadata"]["namespace"], body["metadata"]["name"]


Answer = "list[Object] | list[Event] | KubernetesError"


class Script:
    """An API server that answers lists and watches as written down, one after the other.

    A list is a list of pages, a watch a list of events; an error in their place, or among them, is raised there.
    """

    def __init__(
        self, *answers: list[Any] | KubernetesError, then: Callable[[], None] = lambda: None
    ) -> None:
        self.asked: list[str] = []
        self._answers, self._then = list(answers), then

    def _next(self, what: str) -> list[Any]:
        self.asked.append(what)
        if not self._answers:
            raise Finished
        answer = self._answers.pop(0)
        if isinstance(answer, KubernetesError):
            raise answer
        return answer

    async def pages(self, _kind: Kind, _namespace: str | None, **_: object) -> AsyncIterator[Object]:
        for page in self._next("list"):
            if isinstance(page, KubernetesError):
                raise page
            yield page

    async def watch(
        self, _kind: Kind, _namespace: str | None, *, resource_version: str, **_: object
    ) -> AsyncIterator[Event]:
        for event in self._next(f"watch from {resource_version}"):
            if isinstance(event, KubernetesError):
                raise event
            yield event


class Finished(BaseException):
    """The script is at its end."""
