"""A thread that stands in for the event loop while a coroutine blocks it, and names the coroutine.

Every few seconds the thread asks the loop for a turn. If none has come by the next time, the thread runs an event loop
of its own until one comes: it answers probes and scrapes on the same sockets, and runs the process' stand-in, which
renews leases. If the loop stays blocked for longer than any task may run, the thread ends the process. See
docs/contributing/decisions/0062-a-thread-renews-leases-while-the-event-loop-is-blocked.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from delayq.service.http_server import HttpServer, Response
from delayq.service.loop import Loop, Service
from delayq.service.shutdown import end_within

if TYPE_CHECKING:
    from types import FrameType

    from delayq.service.counters import WorkerCounters
    from delayq.service.http_server import Query
    from delayq.service.probes import Probes

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = (
    30.0  # for the loop to come back, after the last time at which the stand-in keeps a lease
)
KUBELET_SECONDS: Final = (
    60.0  # for a kubelet to restart the container by its failing probe, before the process ends
)
LOOK_SECONDS: Final = 0.25  # between two looks whether the loop has come back
SUSPENDED_SECONDS: Final = 1.0  # the thread woke so much too late: the whole process was stopped


class StandIn(Service, Protocol):
    """What goes on while the event loop is blocked, in a loop of the thread."""

    counters: WorkerCounters
    pause_seconds: float
    """Between two steps, and between two turns of the loop that the thread asks for."""

    @property
    def keeps_until(self) -> float:
        """Return the last time at which it will renew a lease, as of now; monotonic seconds."""

    def begin(self, loop: asyncio.AbstractEventLoop, since: float) -> None:
        """Stand in for `loop`, which is blocked since then."""

    def culprit(self, task: asyncio.Task[Any] | None, frame: FrameType | None) -> dict[str, object]:
        """Return log fields that describe what blocks the loop: its current asyncio task, and its thread's frame."""

    async def close(self) -> None:
        """Close what it has opened."""


class LoopWatch:
    """Watches the event loop in which its `with` block begins."""

    def __init__(self, stand_in: StandIn, server: HttpServer, probes: Probes) -> None:
        """Start nothing yet. `server` listens already."""
        self._stand_in, self._server, self._probes = stand_in, server, probes
        self._seconds = stand_in.pause_seconds
        self._stopped = threading.Event()
        self._asked_at: float | None = None  # monotonic seconds; None: the loop has had a turn since

    def __enter__(self) -> None:
        """Start the thread."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._watch, name="delayq-loop-watch", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        """Let the thread end."""
        self._stopped.set()

    def _watch(self) -> None:
        wakes_at = time.monotonic() + self._seconds
        while not self._stopped.wait(max(0.0, wakes_at - time.monotonic())):
            # After a stop of the whole process the loop gets time for a turn before it counts as blocked.
            late = time.monotonic() > wakes_at + SUSPENDED_SECONDS
            try:
                if self._asked_at is None:
                    self._asked_at = time.monotonic()
                    self._loop.call_soon_threadsafe(self._turned)
                elif not late:
                    asyncio.run(self._stand_in_for_loop(self._asked_at))
            except Exception:
                log.exception("step_failed", extra={"fields": {"loop": "loop_watch"}})
            wakes_at = time.monotonic() + (min(LOOK_SECONDS, self._seconds) if late else self._seconds)

    def _turned(self) -> None:
        self._asked_at = None

    @property
    def _blocked(self) -> bool:
        return self._asked_at is not None and not self._stopped.is_set()

    @property
    def _seconds_left(self) -> float:
        return self._stand_in.keeps_until + GRACE_SECONDS - time.monotonic()

    async def _stand_in_for_loop(self, since: float) -> None:
        """Do for the loop what cannot wait, until it has a turn."""
        self._stand_in.begin(self._loop, since)
        server = HttpServer(
            {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._probes.metrics}
        )
        loop = Loop(self._stand_in, self._stand_in.counters)
        standing_in = asyncio.create_task(loop.run())
        try:
            await server.share(self._server)
            await self._wait(since)
        finally:
            loop.stop()
            await standing_in
            await server.close()
            await self._stand_in.close()

    async def _wait(self, since: float) -> None:
        """Wait until the loop has a turn; report it at first, and each time that it takes twice as long."""
        report_at = since
        while self._blocked:
            now = time.monotonic()
            self._stand_in.counters.note_blocked(now - since)
            ends = self._seconds_left < -_restart_seconds()
            if ends or now >= report_at:
                report_at = now + (now - since)
                self._report(now - since, ends_process=ends)
            if ends:
                end_within(0.0, 1)
            await asyncio.sleep(min(LOOK_SECONDS, self._seconds))
        log.info("event_loop_recovered", extra={"fields": {"seconds": round(time.monotonic() - since, 1)}})

    def _report(self, seconds: float, *, ends_process: bool) -> None:
        """Log what blocks the loop, in a thread: what blocks it may hold the log's lock."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 -- a public function in spite of its name
        fields = self._stand_in.culprit(asyncio.current_task(self._loop), frame)
        fields |= {"seconds": round(seconds, 1)} | ({"ends_process": True} if ends_process else {})
        threading.Thread(target=_say, args=(fields,), daemon=True).start()

    async def _healthz(self, _query: Query) -> Response:
        """Return 200 until the loop is blocked for so long that only a restart helps."""
        return Response("ok\n") if self._seconds_left > 0 else Response("stuck: the event loop\n", 500)

    async def _readyz(self, _query: Query) -> Response:
        return Response("not ready: the event loop is blocked, see event_loop_blocked in the log\n", 503)


def _say(fields: dict[str, object]) -> None:
    log.error("event_loop_blocked", extra={"fields": fields})


def _restart_seconds() -> float:
    """For how long the process leaves it to others to restart it."""
    return KUBELET_SECONDS if "KUBERNETES_SERVICE_HOST" in os.environ else 0.0
