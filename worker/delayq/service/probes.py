"""/healthz, /readyz and /metrics of a process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from delayq.protocol import due_histogram
from delayq.service import exposition
from delayq.service.http_server import HttpServer, Response
from delayq.service.loop import STUCK_AFTER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from delayq.protocol.due_histogram import DueHistogram
    from delayq.service.exposition import Family
    from delayq.service.http_server import Query
    from delayq.service.loop import Loop

READY_WITHIN_SECONDS = 15.0  # a loop that has not succeeded for longer is not ready


class Looped(Protocol):
    """A process, as its probes use it."""

    @property
    def loops(self) -> Sequence[Loop]:
        """The current loops."""


@dataclass(frozen=True)
class Probes:
    """Responds from the state of the loops; only /metrics of a scanner calls Redis."""

    process: Looped
    families: Callable[[DueHistogram], Awaitable[Iterable[Family]]]
    patience_seconds: float = STUCK_AFTER_SECONDS
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serializes requests for horizons."""

    def stuck(self) -> list[str]:
        """Return the names of loops whose step hangs or never started."""
        return [
            name
            for queue, loops in self._queues()
            for name in _named(
                queue, [each.service.name for each in loops if each.stuck_seconds > self.patience_seconds]
            )
        ]

    def unready(self) -> list[str]:
        """Return the names of loops without a recent success."""
        return [name for queue, loops in self._queues() for name in _named(queue, _unready(loops))]

    def _queues(self) -> list[tuple[str, list[Loop]]]:
        """Return the loops by queue; the name of a single queue is empty."""
        queues: dict[str, list[Loop]] = {}
        for loop in self.process.loops:
            queues.setdefault(loop.queue, []).append(loop)
        return list(queues.items()) if len(queues) > 1 else [("", list(self.process.loops))]

    async def healthz(self, _query: Query) -> Response:
        """Return 200 while every loop makes progress; 500 makes the kubelet restart the container."""
        return _verdict("stuck", self.stuck(), 500)

    async def readyz(self, _query: Query) -> Response:
        """Return 200 while every loop works, which needs Redis; else 503."""
        return _verdict("not ready", self.unready(), 503)

    async def metrics(self, _query: Query) -> Response:
        """Return Prometheus' text format. A query is ignored: any pod may send one, and horizons are expensive."""
        return _exposition(list(await self.families(due_histogram.ALWAYS)))

    async def horizons(self, query: Query) -> Response:
        """Return what `?horizon=` and `?kinds_within=` ask for, one request at a time; 400 when it is invalid."""
        words, kinds_within = query.get("horizon", []), query.get("kinds_within", ())
        try:
            wanted = due_histogram.asked(words, kinds_within)
        except ValueError as error:
            return Response(f"{error}\n", 400)
        async with self.turn:
            return _exposition(list(await self.families(wanted)))

    def server(self) -> HttpServer:
        """Return the server for kubelets and Prometheus."""
        return HttpServer({"/healthz": self.healthz, "/readyz": self.readyz, "/metrics": self.metrics})

    def horizons_server(self) -> HttpServer:
        """Return the server for the operator only."""
        return HttpServer({"/metrics": self.horizons})


def _unready(loops: Sequence[Loop]) -> list[str]:
    """Return the names of a queue's loops without a recent success.

    The loops of a shard group are ignored while all loops of another group work, and those of a part of a group
    while another part works: a process that serves some shards is useful, and neither a restart nor a paused
    rollout repairs the other shards' server or keys.
    """
    groups, parts = defaultdict[object, list[str]](list), defaultdict[object, list[str]](list)
    works = set[object]()
    for loop in loops:
        ready, found = loop.ready(READY_WITHIN_SECONDS), parts if loop.part else groups
        groups[loop.group] += []
        why = f" ({loop.waits_for})" if loop.waits_for else ""
        found[loop.group] += [] if ready else [f"{loop.service.name}{why}"]
        if loop.part and ready:
            works.add(loop.group)
    for group in parts.keys() - works:
        groups[group] += parts[group]
    unready = groups.pop(None, [])
    return unready if groups and not all(groups.values()) else [*unready, *chain(*groups.values())]


def _named(queue: str, names: Iterable[str]) -> list[str]:
    return [f"{queue}: {name}" if queue else name for name in names]


def _exposition(families: Iterable[Family]) -> Response:
    return Response(exposition.render(families), content_type=exposition.CONTENT_TYPE)


def _verdict(what: str, names: list[str], status: int) -> Response:
    return Response(f"{what}: {', '.join(names)}\n", status) if names else Response("ok\n")
