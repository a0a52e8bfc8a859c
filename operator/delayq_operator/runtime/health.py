"""/healthz, /readyz and /metrics of the operator, leader or not.

Alive: every watch showed a sign of life, the event loop keeps time, kopf keeps up, and no reconciliation hangs. An API
server that is unavailable does not fail the liveness probe: a restart would not help.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delayq.service.http_server import HttpServer, Response

from delayq_operator.base import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.kube.reflector import Reflector
    from delayq.service.http_server import Query

    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.watch_verifier import WatchVerifier
    from delayq_operator.kube.lease import Leadership

TICK_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 60.0
WATCH_DEAD_SECONDS: Final = 240.0  # longer than the timeouts of the reflectors
HUNG_SECONDS: Final = 600.0
"""A reconciliation that takes longer hangs: it sends about thirty requests, and ends at the first one that reaches the
timeout of 15 s. The limit allows for forty timeouts."""


@dataclass
class Health:
    """The state that the probes report."""

    leadership: Leadership
    watch_verifier: WatchVerifier
    work: WorkQueue
    reflectors: list[Reflector] = field(default_factory=list)
    synced: bool = False
    """Whether all caches have synced once."""
    lag_seconds: float = 0.0

    async def run(self) -> None:
        """Measure the delay of timers until cancelled: a blocked event loop delays all of them."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self.lag_seconds = loop.time() - due
            metrics.LOOP_LAG.set(self.lag_seconds)
            report_ages(self.reflectors)

    def failures(self) -> list[str]:
        """Return why the operator must be restarted; empty while it is healthy."""
        found = [
            f"the watch of {reflector.kind.plural} has done nothing for {reflector.idle_seconds:.0f} s"
            for reflector in self.reflectors
            if reflector.idle_seconds > WATCH_DEAD_SECONDS
        ]
        behind = self.watch_verifier.behind_seconds
        if behind > STUCK_SECONDS:
            found.append(f"kopf has missed a change of a DelayQueue for {behind:.0f} s")
        if self.lag_seconds > STUCK_SECONDS:
            found.append(f"the event loop was {self.lag_seconds:.0f} s late")
        if self.work.longest_seconds > HUNG_SECONDS:
            found.append(f"a reconciliation has gone on for {self.work.longest_seconds:.0f} s")
        return found

    def unready(self) -> list[str]:
        """Return why the operator is not ready. A standby is ready when it knows the leader."""
        if self.leadership.unanswered_seconds > STUCK_SECONDS:
            return ["the Lease could not be read"]
        if self.leadership.leads and not self.synced:
            return ["not everything was listed yet"]
        return []

    async def healthz(self, _query: Query) -> Response:
        return _verdict(self.failures(), 500)

    async def readyz(self, _query: Query) -> Response:
        return _verdict(self.unready(), 503)

    async def metrics(self, _query: Query) -> Response:
        body, content_type = metrics.exposition()
        return Response(body, content_type=content_type)

    def server(self) -> HttpServer:
        return HttpServer({"/healthz": self.healthz, "/readyz": self.readyz, "/metrics": self.metrics})


def _verdict(failures: list[str], status: int) -> Response:
    return Response("\n".join(failures) + "\n", status) if failures else Response("ok\n")


def report_ages(reflectors: Iterable[Reflector]) -> None:
    for reflector in sorted(reflectors, key=lambda each: each.age_seconds):
        metrics.WATCH_AGE.labels(reflector.kind.plural).set(reflector.age_seconds)
