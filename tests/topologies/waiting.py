"""Waiting for changes that servers do not announce, and asking the first of them that answers."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from tests.processes import Gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.servers import RedisServer

LOOK_AGAIN_SECONDS = 0.02


def until(condition: Callable[[], object], what: str, *, timeout_s: float = 60) -> float:
    """Ask until it is so; the seconds it took. A server that does not answer just now has not said no."""
    began = time.monotonic()
    while True:
        with suppress(RedisError, OSError):
            if condition():
                return time.monotonic() - began
        if time.monotonic() - began > timeout_s:
            raise Gone(f"not within {timeout_s:g} s: {what}")
        time.sleep(LOOK_AGAIN_SECONDS)


def answer(servers: Iterable[RedisServer], *command: str) -> object:
    """What the first of them that answers says."""
    for server in servers:
        if server.process.alive and not server.paused:
            with suppress(RedisError, OSError), server.client() as client:
                return client.execute_command(*command)
    raise Gone(f"nothing answers {' '.join(command)}")
