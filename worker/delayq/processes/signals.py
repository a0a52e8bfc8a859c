"""SIGTERM and SIGINT as events."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
RESTORE_SECONDS = 1.0  # between two looks whether their handlers were replaced


@asynccontextmanager
async def signals() -> AsyncIterator[tuple[asyncio.Event, asyncio.Event]]:
    """The first SIGTERM or SIGINT sets `stop`, the second `hurry`."""
    loop, stop, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, signalled)
    keeping = asyncio.create_task(_keep(signalled))
    try:
        yield stop, hurry
    finally:
        keeping.cancel()
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _keep(signalled: Callable[[], None]) -> None:
    """Restore the handlers of signals that a coroutine of the user has replaced: the process must end when asked."""
    ours = {number: signal.getsignal(number) for number in SIGNALS}
    while True:
        await asyncio.sleep(RESTORE_SECONDS)
        for number in SIGNALS:
            if signal.getsignal(number) is not ours[number]:
                asyncio.get_running_loop().add_signal_handler(number, signalled)
                ours[number] = signal.getsignal(number)
                log.warning("signal_handler_restored", extra={"fields": {"signal": number.name}})
