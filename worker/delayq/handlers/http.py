"""Handlers that are HTTP services: one POST per run of a task.

Not here: the request and its headers (`http_post.py`), the meaning of a response (`http_response.py`).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import aiohttp

from delayq.errors import Retry
from delayq.handlers.base import Handler
from delayq.handlers.http_post import Post
from delayq.handlers.http_response import settle

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import HttpHandler as HttpSpec
    from delayq.protocol.envelope import Task

FIELD = "spec.handler.http"
BODY_SECONDS = 1.0  # the status has decided: a slow body must not occupy the slot


class HTTPTimeoutError(Exception):
    """The receiver did not answer in time."""


class HttpHandler(Post, Handler):
    """A service, and the pool of connections to it."""

    def __init__(
        self, spec: HttpSpec, *, timeout_seconds: float, secrets_dir: Path, field: str = FIELD
    ) -> None:
        """See Post."""
        super().__init__(
            spec,
            connections=spec.max_connections,
            timeout_seconds=timeout_seconds,
            body_seconds=BODY_SECONDS,
            field=field,
            secrets_dir=secrets_dir,
        )

    async def call(self, task: Task) -> None:
        """Deliver the task and settle it by the answer."""
        try:
            answer = await self.send(task)
        except TimeoutError as error:
            cause = HTTPTimeoutError(str(error) or f"no answer within {self._timeout_seconds:g} s")
            raise Retry(f"HTTPTimeoutError: {cause}") from cause
        except (aiohttp.ClientError, OSError) as error:
            raise Retry(_described(error)) from None  # its traceback is that of a library
        settle(answer, now_seconds=time.time(), credentials=self.credentials.proves)


def _described(error: Exception) -> str:
    """Return why a request failed; for a refused connection, what the operating system says."""
    cause = getattr(error, "os_error", None)
    if type(error) is aiohttp.ClientConnectorError and isinstance(cause, ConnectionError) and cause.errno:
        return f"cannot connect to {error.host}:{error.port}: {os.strerror(cause.errno).lower()}"
    return f"{type(error).__name__}: {error}"
