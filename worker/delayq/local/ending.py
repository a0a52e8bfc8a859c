"""Ending processes: asked, hurried when a second signal comes, killed when even that is not enough."""

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

# A worker gives handlers 10 s to clean up once it tells them to stop, and Redis 5 s to take what they came to.
HURRY_SECONDS = 18.0


class Urgency:
    """Each signal raises it: stop and drain, hurry, kill."""

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.stop, self.hurry, self.kill = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def signalled(self, number: signal.Signals) -> None:
        """Raise it by one."""
        for wish, event in (("stopping", self.stop), ("hurrying", self.hurry), ("killing", self.kill)):
            if not event.is_set():
                event.set()
                log.info(wish, extra={"fields": {"by": number.name}})
                return


@contextmanager
def signals() -> Iterator[Urgency]:
    """Listen to SIGTERM, SIGINT and, unless started with nohup, to the terminal's end."""
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
    """Wait until one of these is done, for so long at most, and cancel the others."""
    tasks = [asyncio.create_task(each) for each in those]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()


async def end(keepers: Sequence[Keeper], seconds: float, urgency: Urgency) -> bool:
    """End these processes, within `seconds` unless hurried; False if some had to be killed."""
    tasks = {keeper.task for keeper in keepers if keeper.task is not None}
    if not tasks:
        return True
    for task in tasks:
        task.add_done_callback(_heard)
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


def _heard(task: asyncio.Task[None]) -> None:
    """Several processes may fail for one reason: the first one's error is reported, the others must not be traced."""
    if not task.cancelled():
        task.exception()
