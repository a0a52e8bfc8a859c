"""End forked copies of the worker: if a handler forks, the child must exit when it returns to delayq's code.

It would claim and settle over connections that the worker uses, too, and outlive it. A child that ends by os._exit()
or becomes another program is the handler's own business.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading

log = logging.getLogger(__name__)


class _Process:
    """What a forked child needs to know of its parent."""

    forked = False
    loop: asyncio.AbstractEventLoop | None = None
    thread = 0  # that runs the loop


def watch() -> None:
    """Take this process for the one that children are copies of; one forked by a coroutine must not run the loop."""
    _Process.forked = False
    _Process.loop, _Process.thread = asyncio.get_running_loop(), threading.get_ident()


def end_if_forked() -> None:
    """End a forked child in which a handler's function is over; exit code 1 if it raised."""
    if _Process.forked:
        _end("returned" if sys.exc_info()[0] is None else "raised")


def _end(how: str) -> None:
    """Nothing is flushed: what streams hold is the worker's, which writes it itself."""
    log.error("forked_child_ended", extra={"fields": {"child": os.getpid(), "how": how}})
    os._exit(0 if how == "returned" else 1)


def _in_child() -> None:
    _Process.forked, loop = True, _Process.loop
    if loop is not None and threading.get_ident() == _Process.thread:
        # A loop calls what is ready before it looks at its sockets, which are the worker's. Tasks that are ready, too,
        # come first: cancelled, they do not go on.
        loop.call_soon(_end, "awaited")
        for task in asyncio.all_tasks(loop):
            task.cancel()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_in_child)
