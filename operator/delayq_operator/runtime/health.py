"""/healthz, /readyz and /metrics of the operator, leader or not.

Alive: lists go on, both event loops keep time, and no reconciliation hangs. An API server that is unavailable does not
fail the liveness probe: a restart would not help.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.service.http_server import HttpServer, Response

from delayq_operator.base import metrics

if TYPE_CHECKING:
    from delayq.service.http_server import Query

    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.kube.lease import Leadership
    from delayq_operator.reconcile.lists import Lists
    from delayq_operator.runtime.delivery import Delivery

TICK_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 60.0
LISTS_DEAD_SECONDS: Final = 240.0  # longer than a minute and the timeouts of a list
HUNG_SECONDS: Final = 600.0
"""A reconciliation that takes longer hangs: it sends about thirty requests, and ends at the first one that reaches the
timeout of 15 s. The limit allows for forty timeouts."""


@dataclass
class Health:
    """The state that the probes report."""

    leadership: Leadership
    lists: Lists
    delivery: Delivery
    work: WorkQueue
    lag_seconds: float = 0.0

    async def run(self) -> None:
        """Measure the delay of timers until cancelled: a blocked event loop delays all of them."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self.lag_seconds = loop.time() - due
            metrics.LOOP_LAG.set(self.lag_seconds)

    def failures(self) -> list[str]:
        """Return why the operator must be restarted; empty while it is healthy."""
        found = []
        idle = time.monotonic() - self.lists.tried_at
        if self.delivery.synced.is_set() and idle > LISTS_DEAD_SECONDS:
            found.append(f"nothing was listed for {idle:.0f} s")
        if self.delivery.kopf_seconds > STUCK_SECONDS:
            found.append(f"the event loop of kopf was {self.delivery.kopf_seconds:.0f} s late")
        if self.lag_seconds > STUCK_SECONDS:
            found.append(f"the event loop was {self.lag_seconds:.0f} s late")
        if self.work.longest_seconds > HUNG_SECONDS:
            found.append(f"a reconciliation has gone on for {self.work.longest_seconds:.0f} s")
        return found

    def unready(self) -> list[str]:
        """Return why the operator is not ready. A standby is ready when it has read the Lease."""
        if self.leadership.unanswered_seconds > STUCK_SECONDS:
            return ["the Lease could not be read"]
        if self.leadership.leads and not self.delivery.synced.is_set():
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
