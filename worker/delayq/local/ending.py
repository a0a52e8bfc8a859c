"""Ending processes: asked, hurried when a second signal comes, killed when even that is not enough."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.local.keeper import Keeper
    from delayq.local.urgency import Urgency

log = logging.getLogger(__name__)

# A worker gives handlers 10 s to clean up once it tells them to stop, and Redis 5 s to take what they came to.
HURRY_SECONDS = 18.0


async def end(keepers: Sequence[Keeper], seconds: float, urgency: Urgency) -> bool:
    """End these processes, within `seconds` unless hurried; False if some had to be killed."""
    tasks = {keeper.task for keeper in keepers if keeper.task is not None}
    for task in tasks:
        task.add_done_callback(_heard)
    _stop(keepers)
    if await _ended(tasks, seconds, urgency.hurry):
        return True
    if urgency.hurry.is_set():
        _stop(keepers)
        if await _ended(tasks, HURRY_SECONDS, urgency.kill):
            return True
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


def _stop(keepers: Sequence[Keeper]) -> None:
    for keeper in keepers:
        keeper.stop()


async def _ended(tasks: set[asyncio.Task[None]], seconds: float, sooner: asyncio.Event) -> bool:
    """Wait until all have ended, for `seconds` or until `sooner` is set."""
    if not tasks:
        return True
    every = asyncio.ensure_future(asyncio.wait(tasks))
    impatience = asyncio.ensure_future(sooner.wait())
    both: set[asyncio.Future[Any]] = {every, impatience}
    await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for each in both:
        each.cancel()
    return all(task.done() for task in tasks)
