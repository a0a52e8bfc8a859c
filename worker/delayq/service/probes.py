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
    """A process, as its probes know it."""

    @property
    def loops(self) -> Sequence[Loop]:
        """Those there are now."""


@dataclass(frozen=True)
class Probes:
    """Answers from the state of the loops; nothing here asks Redis but /metrics of a scanner."""

    process: Looped
    families: Callable[[DueHistogram], Awaitable[Iterable[Family]]]
    patience_seconds: float = STUCK_AFTER_SECONDS
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Whose turn it is to ask for horizons."""

    def stuck(self) -> list[str]:
        """Name the loops whose step hangs or was never begun."""
        return [
            loop.service.name for loop in self.process.loops if loop.stuck_seconds > self.patience_seconds
        ]

    def unready(self) -> list[str]:
        """Name the loops that have not yet worked, or not for a while.

        The loops of a shard group do not count while all loops of another group work, nor those of a part of a group
        while another part works: a process that serves some shards is useful, and neither a restart nor a paused
        rollout repairs the other shards' server or keys.
        """
        groups, parts = defaultdict[object, list[str]](list), defaultdict[object, list[str]](list)
        works = set[object]()
        for loop in self.process.loops:
            ready, found = loop.ready(READY_WITHIN_SECONDS), parts if loop.part else groups
            groups[loop.group] += []
            found[loop.group] += [] if ready else [loop.service.name]
            if loop.part and ready:
                works.add(loop.group)
        for group in parts.keys() - works:
            groups[group] += parts[group]
        unready = groups.pop(None, [])
        return unready if groups and not all(groups.values()) else [*unready, *chain(*groups.values())]

    async def healthz(self, _query: Query) -> Response:
        """Answer 200 while every loop moves; 500 asks for a restart."""
        return _verdict("stuck", self.stuck(), 500)

    async def readyz(self, _query: Query) -> Response:
        """Answer 200 once every loop works, which takes Redis; 503 else."""
        return _verdict("not ready", self.unready(), 503)

    async def metrics(self, _query: Query) -> Response:
        """Answer in Prometheus' text format. A query is ignored: what it would cost is not for every pod to ask."""
        return _exposition(list(await self.families(due_histogram.ALWAYS)))

    async def horizons(self, query: Query) -> Response:
        """Answer with the horizons that `?horizon=` asks for, one request at a time; 400 when it cannot be read."""
        words = query.get("horizon", [])
        try:
            wanted = due_histogram.asked(words) if words else due_histogram.ALWAYS
        except ValueError as error:
            return Response(f"{error}\n", 400)
        async with self.turn:
            return _exposition(list(await self.families(wanted)))

    def server(self) -> HttpServer:
        """Return what kubelets and Prometheus may reach."""
        return HttpServer({"/healthz": self.healthz, "/readyz": self.readyz, "/metrics": self.metrics})

    def horizons_server(self) -> HttpServer:
        """Return what the operator alone may reach."""
        return HttpServer({"/metrics": self.horizons})


def _exposition(families: Iterable[Family]) -> Response:
    return Response(exposition.render(families), content_type=exposition.CONTENT_TYPE)


def _verdict(what: str, names: list[str], status: int) -> Response:
    return Response(f"{what}: {', '.join(names)}\n", status) if names else Response("ok\n")
