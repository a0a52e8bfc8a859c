"""How much of a hurry the person at the terminal is in."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)


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
