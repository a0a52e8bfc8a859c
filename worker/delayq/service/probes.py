"""/healthz, /readyz and /metrics of a process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from delayq.protocol import due_histogram
from delayq.service import listen, metrics
from delayq.service.loop import STUCK_AFTER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from aiohttp.typedefs import Handler

    from delayq.protocol.due_histogram import Horizons
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
    families: Callable[[Horizons], Awaitable[Iterable[metrics.Family]]]
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

        Those of a lane do not count while all of another lane work, nor those of a part of a lane while another part
        works: a process that serves some shards is of use, and neither a restart nor a pause of a rollout brings the
        others' server back, or mends their keys.
        """
        lanes, parts = defaultdict[object, list[str]](list), defaultdict[object, list[str]](list)
        works = set[object]()
        for loop in self.process.loops:
            ready, found = loop.ready(READY_WITHIN_SECONDS), parts if loop.part else lanes
            lanes[loop.lane] += []
            found[loop.lane] += [] if ready else [loop.service.name]
            if loop.part and ready:
                works.add(loop.lane)
        for lane in parts.keys() - works:
            lanes[lane] += parts[lane]
        unready = lanes.pop(None, [])
        return unready if lanes and not all(lanes.values()) else [*unready, *chain(*lanes.values())]

    async def healthz(self, _request: web.Request) -> web.Response:
        """Answer 200 while every loop moves; 500 asks for a restart."""
        return _verdict("stuck", self.stuck(), 500)

    async def readyz(self, _request: web.Request) -> web.Response:
        """Answer 200 once every loop works, which takes Redis; 503 else."""
        return _verdict("not ready", self.unready(), 503)

    async def metrics(self, _request: web.Request) -> web.Response:
        """Answer in Prometheus' text format. A query is ignored: what it would cost is not for every pod to ask."""
        return _exposition(list(await self.families(due_histogram.ALWAYS)))

    async def horizons(self, request: web.Request) -> web.Response:
        """Answer with the horizons that `?horizon=` asks for, one request at a time; 400 when it cannot be read."""
        words = request.query.getall("horizon", [])
        try:
            wanted = due_histogram.asked(words) if words else due_histogram.ALWAYS
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        async with self.turn:
            return _exposition(list(await self.families(wanted)))

    async def serve(self, host: str, port: int) -> tuple[web.AppRunner, int]:
        """Listen; port 0 takes a free one. Returns the runner to clean up and the port."""
        routes = {"/healthz": self.healthz, "/readyz": self.readyz, "/metrics": self.metrics}
        return await _serve(routes, host, port)

    async def serve_horizons(self, host: str, port: int) -> tuple[web.AppRunner, int]:
        """Listen on the port that the operator alone may reach."""
        return await _serve({"/metrics": self.horizons}, host, port)


async def _serve(routes: Mapping[str, Handler], host: str, port: int) -> tuple[web.AppRunner, int]:
    app = web.Application()
    app.add_routes([web.get(path, answer) for path, answer in routes.items()])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await listen.site(runner, host, port).start()
    return runner, int(runner.addresses[0][1])


def _exposition(families: Iterable[metrics.Family]) -> web.Response:
    return web.Response(body=metrics.render(lambda: families), headers={"Content-Type": metrics.CONTENT_TYPE})


def _verdict(what: str, names: list[str], status: int) -> web.Response:
    if names:
        return web.Response(status=status, text=f"{what}: {', '.join(names)}\n")
    return web.Response(text="ok\n")
