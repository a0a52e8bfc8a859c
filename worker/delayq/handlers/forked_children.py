"""End forked copies of the worker: if a handler forks, the child must exit when it returns to delayq's code.

Otherwise it would claim and settle tasks over connections that it shares with the worker, and outlive the worker. A
child that calls os._exit() or executes another program is not affected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading

log = logging.getLogger(__name__)


class _Process:
    """The parent's state, as a forked child sees it."""

    forked = False
    loop: asyncio.AbstractEventLoop | None = None
    thread = 0  # that runs the loop


def watch() -> None:
    """Record this process as the parent, with its loop: a child that a coroutine forks must not run the loop."""
    _Process.forked = False
    _Process.loop, _Process.thread = asyncio.get_running_loop(), threading.get_ident()


def end_if_forked() -> None:
    """Exit if this is a forked child whose handler function has ended; exit code 1 if it raised."""
    if _Process.forked:
        _end("returned" if sys.exc_info()[0] is None else "raised")


def _end(how: str) -> None:
    """Exit without a flush: buffered output belongs to the worker, which writes it itself."""
    log.error("forked_child_ended", extra={"fields": {"child": os.getpid(), "how": how}})
    os._exit(0 if how == "returned" else 1)


def _in_child() -> None:
    _Process.forked, loop = True, _Process.loop
    if loop is not None and threading.get_ident() == _Process.thread:
        # A loop runs ready callbacks before it polls its sockets, which are the worker's. Tasks that are ready now run
        # before this callback: cancel them, so that they do not continue.
        loop.call_soon(_end, "awaited")
        for task in asyncio.all_tasks(loop):
            task.cancel()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_in_child)
