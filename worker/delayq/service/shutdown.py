"""Guaranteed exit of a process: a separate thread ends it at a deadline if anything hangs.

Users' code may ignore its cancellation, stop the event loop, block a thread or hold a lock; libraries may wait for a
server that is down. Not here: what a process does before it exits.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger(__name__)

EXIT_SECONDS = 5.0  # for the event loop, its threads and the interpreter to end
SAY_SECONDS = 1.0  # for the last log line: the thread that hangs may hold the log's lock


class _Deadline:
    """The deadline of the process, by the monotonic clock, and its exit code."""

    at = float("inf")
    code = 1
    thread: threading.Thread | None = None
    by_alarm = False  # there was no thread for it


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a process' coroutine to its end; the process exits within EXIT_SECONDS afterwards.

    A handler that stops the event loop, or starts an asyncio task that raises SystemExit, does not end the process.
    """
    atexit.register(_leave_if_starved)  # before users' code is imported: exit handlers run in reverse order
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    loop = runner.get_loop()
    task, code = loop.create_task(main), 1
    try:
        while not task.done():
            _run_loop(loop, task)
        code = 1 if task.exception() else 0
    finally:
        end_within(EXIT_SECONDS, code)
        with suppress(RuntimeError):  # a pending stop of the loop
            runner.close()
    task.result()


def _run_loop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    try:
        loop.run_until_complete(task)
    except BaseException as error:
        if task.done():
            raise
        fields = {"error": f"{type(error).__name__}: {error}"}
        log.error("event_loop_interrupted", extra={"fields": fields})  # noqa: TRY400 -- no useful traceback


def end_within(seconds: float, code: int) -> None:
    """Set the deadline to `seconds` from now, unless it is earlier already."""
    at = time.monotonic() + seconds
    _Deadline.at, _Deadline.code = min(at, _Deadline.at), code
    if _Deadline.thread is None:
        thread = threading.Thread(target=_wait, name="delayq-shutdown", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the process lacks threads: the kernel ends it at this deadline, by SIGALRM
            _Deadline.by_alarm = True
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(math.ceil(seconds))
        else:
            _Deadline.thread = thread


def _wait() -> None:
    while (left := _Deadline.at - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))  # the deadline may have moved
    hanging = [each.name for each in threading.enumerate() if not each.daemon]
    say = threading.Thread(target=_say, args=(hanging,), daemon=True)
    say.start()
    say.join(SAY_SECONDS)
    os._exit(_Deadline.code)


def _say(hanging: list[str]) -> None:
    log.error("exit_forced", extra={"fields": {"code": _Deadline.code, "threads": hanging}})
    flush()


def leave(code: int = 0) -> None:
    """End at once, without waiting for tasks and threads."""
    flush()
    os._exit(code)


def _leave_if_starved() -> None:
    """Skip the rest of the interpreter's exit: glibc aborts there if it has no memory to end a daemon thread."""
    if _Deadline.by_alarm:
        leave(_Deadline.code)


def flush() -> None:
    """Flush logs and standard streams."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or without a reader: the output is lost
            stream.flush()
