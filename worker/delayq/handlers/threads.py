"""Threads for handlers that are not coroutines.

`ThreadPoolExecutor` is not suitable. The interpreter joins its threads at exit, so one stuck handler would prevent a
worker from stopping. A thread cannot be killed: one that outlives its task would occupy a place in the pool, and the
next task would wait while its lease and its timeout already run. Here, every task gets a thread at once, threads are
daemons, and the number of those that outlive their task is limited.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from typing import TYPE_CHECKING

from delayq.errors import NotStarted
from delayq.guards.base import note_ending
from delayq.service import logs
from delayq.service.resources import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.protocol.envelope import Task

log = logging.getLogger(__name__)

EXHAUSTED = "no free thread: as many as worker.concurrency still run handlers of cancelled tasks"


class Threads:
    """A thread for each running task, and up to `size` threads that still run for cancelled tasks."""

    def __init__(self, size: int) -> None:
        """Start no thread: run() starts them as needed."""
        self._size = size
        self._idle: list[_Thread] = []
        self.abandoned = 0  # threads that still run for cancelled tasks
        self._closed = False

    async def run(self, function: Callable[[Task], object], task: Task) -> object:
        """Call the function in a thread; when cancelled, leave the thread to finish on its own."""
        thread = self._take()
        job = _Job(function, task)
        thread.inbox.put(job)
        try:
            value, error = await job.done
        except asyncio.CancelledError as error:
            ended = asyncio.get_running_loop().create_future()
            if job.returned:
                self._give_back(thread)
                job.tell(ended)
            else:
                self._abandon(job, thread, ended)
            note_ending(error, ended)
            raise
        self._give_back(thread)
        if error is None:
            return value
        raise _safe(error)

    def close(self) -> None:
        """Let idle threads end; abandoned ones are daemons and end with the process."""
        self._closed = True
        while self._idle:
            self._idle.pop().inbox.put(None)

    def _take(self) -> _Thread:
        if self.abandoned >= self._size:
            raise NotStarted(EXHAUSTED)
        return self._idle.pop() if self._idle else _Thread()

    def _give_back(self, thread: _Thread) -> None:
        if self._closed:
            thread.inbox.put(None)
        else:
            self._idle.append(thread)

    def _abandon(self, job: _Job, thread: _Thread, ended: asyncio.Future[None]) -> None:
        self.abandoned += 1
        fields = logs.of_task(job.task) | {"abandoned": self.abandoned}
        log.warning("handler_thread_abandoned", extra={"fields": fields})
        job.cancelled, job.on_late_end = True, lambda: self._returned(job, thread, ended)

    def _returned(self, job: _Job, thread: _Thread, ended: asyncio.Future[None]) -> None:
        self.abandoned -= 1
        self._give_back(thread)
        job.tell(ended)


class _Job:
    """One call: it runs in a thread and delivers its outcome to the event loop."""

    def __init__(self, function: Callable[[Task], object], task: Task) -> None:
        self.task = task
        self.cancelled = False
        self.recorded = False  # by a guard, in the thread
        self.returned = False  # not done.done(): a cancelled task has cancelled the future that it waited for
        self._function = function
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.on_late_end: Callable[[], None] | None = None
        # A value, not set_exception: a future refuses StopIteration, and the task would then wait for ever.
        self.done: asyncio.Future[tuple[object, BaseException | None]] = self._loop.create_future()

    def run(self) -> None:
        """Run in the thread, and catch all that the user's function raises."""
        _current.job = self
        outcome: tuple[object, BaseException | None]
        try:
            outcome = self._context.run(self._function, self.task), None
        except BaseException as error:  # noqa: BLE001 -- handed to the event loop, never swallowed
            outcome = None, error
        _current.job = None
        try:
            self._loop.call_soon_threadsafe(self._deliver, outcome)
        except RuntimeError:  # the loop was closed before the thread ended
            log.debug("handler_thread_outlived_loop", extra={"fields": logs.of_task(self.task)})

    def tell(self, ended: asyncio.Future[None]) -> None:
        """End the future of note_ending()."""
        if not self.recorded:
            ended.cancel()
        elif not ended.done():
            ended.set_result(None)

    def _deliver(self, outcome: tuple[object, BaseException | None]) -> None:
        self.returned = True
        if self.on_late_end is not None:
            self.on_late_end()
        elif not self.done.done():
            self.done.set_result(outcome)


class _Thread:
    """One daemon thread that runs jobs until it gets None."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        start_thread("delayq-handler", self._run)

    def _run(self) -> None:
        while (job := self.inbox.get()) is not None:
            job.run()
            del job  # otherwise an idle thread would keep its last task and result in memory


class _Current(threading.local):
    job: _Job | None = None


_current = _Current()


def cancelled() -> bool:
    """Whether the task of this thread's handler was cancelled (by a user, time limit, lost lease). If so, stop."""
    return _current.job is not None and _current.job.cancelled


def note_recorded() -> None:
    """Note that a guard has recorded the run of this thread's task: it has taken effect, even if it is cancelled."""
    if _current.job is not None:
        _current.job.recorded = True


def _safe(error: BaseException) -> BaseException:
    """Keep sys.exit() or a stray CancelledError in the user's thread from stopping the worker's loop."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"handler raised {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
