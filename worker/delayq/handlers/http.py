"""Handlers that are HTTP services: one POST per run of a task.

Not here: the request and its headers (`http_post.py`), the meaning of a response (`http_response.py`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import aiohttp

from delayq.errors import Retry
from delayq.handlers.base import NO_BATCHES
from delayq.handlers.guarded import apart
from delayq.handlers.http_post import Bounds, Post
from delayq.handlers.http_response import settle

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import HttpHandler as HttpSpec
    from delayq.guards import Guard
    from delayq.handlers.base import HandlerCall
    from delayq.protocol.envelope import Task

FIELD = "spec.handler.http"
BODY_SECONDS = 1.0  # the status has decided: a slow body must not occupy the slot


class HTTPTimeoutError(Exception):
    """The receiver did not answer in time."""


class HttpHandler:
    """A pool of connections to one URL."""

    kinds, batches, joins = None, NO_BATCHES, False

    def __init__(
        self, spec: HttpSpec, *, timeout_seconds: float, secrets_dir: Path, field: str = FIELD
    ) -> None:
        """`timeout_seconds` bounds a whole run, the wait for a connection included.

        `field` is the path in the document that errors name.
        """
        self._timeout_seconds = timeout_seconds
        bounds = Bounds(
            connections=spec.max_connections, timeout_seconds=timeout_seconds, body_seconds=BODY_SECONDS
        )
        self._post = Post(spec, bounds, field=field, secrets_dir=secrets_dir)

    def under(self, guard: Guard[Any]) -> HandlerCall:
        """Call the service inside the guard's block."""
        return apart(self.call, guard)

    async def start(self) -> None:
        """Read the secret and make the pool; nothing is sent."""
        await self._post.start()

    async def close(self) -> None:
        """Close the connections."""
        await self._post.close()

    async def call(self, task: Task) -> None:
        """Deliver the task and settle it by the answer."""
        try:
            answer = await self._post.send(task)
        except TimeoutError as error:
            cause = HTTPTimeoutError(str(error) or f"no answer within {self._timeout_seconds:g} s")
            raise Retry(f"HTTPTimeoutError: {cause}") from cause
        except (aiohttp.ClientError, OSError) as error:
            raise Retry(f"{type(error).__name__}: {error}") from error
        settle(answer, now_seconds=time.time())
