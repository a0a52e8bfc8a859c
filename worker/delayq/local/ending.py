"""Stop processes: drain, hurry at a second signal, kill at a third one or at the time limit."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from delayq.local.keeper import Keeper

log = logging.getLogger(__name__)

# A hurried worker gives handlers 10 s to clean up, and Redis 5 s to store their results.
HURRY_SECONDS = 18.0


class Urgency:
    """How to stop; each signal raises it by one: drain, hurry, kill."""

    def __init__(self) -> None:
        """Start without a request to stop."""
        self.stop, self.hurry, self.kill = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def signalled(self, number: signal.Signals) -> None:
        """Raise the urgency by one."""
        extra = {"fields": {"by": number.name}}
        if not self.stop.is_set():
            self.stop.set()
            log.info("stopping", extra=extra)
        elif not self.hurry.is_set():
            self.hurry.set()
            log.info("hurrying", extra=extra)
        elif not self.kill.is_set():
            self.kill.set()
            log.info("killing", extra=extra)


@contextmanager
def signals() -> Iterator[Urgency]:
    """Handle SIGTERM, SIGINT and, unless started with nohup, SIGHUP."""
    loop, urgency = asyncio.get_running_loop(), Urgency()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, urgency.signalled, number)
    try:
        yield urgency
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def first(*those: Coroutine[Any, Any, Any], seconds: float | None = None) -> None:
    """Wait until one of these is done or the time is over, and cancel the others."""
    tasks = [asyncio.create_task(each) for each in those]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()


async def end(keepers: Sequence[Keeper], seconds: float, urgency: Urgency) -> bool:
    """Stop these processes within `seconds`, or sooner when hurried; return False if any was killed."""
    tasks = {keeper.task for keeper in keepers if keeper.task is not None}
    if not tasks:
        return True
    for task in tasks:
        task.add_done_callback(_retrieve_error)
    for time_limit, sooner in ((seconds, urgency.hurry), (HURRY_SECONDS, urgency.kill)):
        for keeper in keepers:
            keeper.stop()
        await first(asyncio.wait(tasks), sooner.wait(), seconds=time_limit)
        if all(task.done() for task in tasks):
            return True
        if not urgency.hurry.is_set():
            break
    for keeper in keepers:
        if keeper.task is not None and not keeper.task.done():
            log.warning("process_killed", extra={"fields": {"process": keeper.name}})
            keeper.kill()
    await asyncio.wait(tasks)
    return False


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Mark the error as retrieved: asyncio must not log it, because the supervisor reports the first error."""
    if not task.cancelled():
        task.exception()
