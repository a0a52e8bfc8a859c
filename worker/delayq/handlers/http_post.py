"""Send a task to an HTTP service, for handlers and checks: one POST, its headers and signature, the response's start.

A producer cannot inject headers: a value that is not visible ASCII is sent as RFC 8187 text (`UTF-8''caf%C3%A9`), and
names are percent-encoded, except for letters, digits, hyphens and underscores. Not here: the meaning of a response.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import aiohttp
from yarl import URL

from delayq.errors import Bury
from delayq.handlers import signature
from delayq.handlers.base import HandlerSetupError, optional_fields
from delayq.handlers.credentials import Credentials
from delayq.handlers.http_pool import Pool, Request, repeat
from delayq.handlers.http_response import Answer
from delayq.handlers.text import redacted
from delayq.service.resources import check_lack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from delayq.contract.files import Reference
    from delayq.contract.http_service import HttpService
    from delayq.protocol.envelope import Task

EXTENDED = "UTF-8''"

_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")  # no space at either end: receivers strip it


def task_headers(task: Task) -> dict[str, str]:
    """Return every header that comes from the task."""
    task_id = encode(task.id)
    return (
        {
            "Content-Type": _content_type(task),
            "Idempotency-Key": f"{encode(task.queue)}/{task_id}",
            "Delayq-Queue": encode(task.queue),
            "Delayq-Task-Id": task_id,
            "Delayq-Attempt": str(task.attempt),
            "Delayq-Token": str(task.token),
            "Delayq-Due-Ms": str(task.due_ms),
            "Delayq-Scheduled-Ms": str(task.scheduled_ms),
        }
        | {f"Delayq-{name}": encode(value) for name, value in optional_fields(task).items()}
        | {
            f"Delayq-Header-{quote(name, safe='', errors='surrogatepass')}": encode(value)
            for name, value in task.headers.items()
        }
    )


def encode(value: str) -> str:
    """Encode a header value. A value that looks encoded is encoded too, so decoding is unambiguous."""
    if _PLAIN.fullmatch(value) and not value.startswith(EXTENDED):
        return value
    return EXTENDED + quote(value, safe="", errors="surrogatepass") if value else ""


def _content_type(task: Task) -> str:
    if not _PLAIN.fullmatch(task.content_type):
        raise Bury(f"content type {task.content_type!a} cannot be sent as an HTTP header")
    return task.content_type


log = logging.getLogger(__name__)
CONNECT_SECONDS = 10  # an address that never answers must not occupy a slot for a long handler timeout
BODY_BYTES = 64 * 1024  # read to reuse the connection; a connection with a longer response is closed


class Post:
    """A pool of connections to one URL."""

    def __init__(
        self,
        spec: HttpService,
        *,
        connections: int,
        timeout_seconds: float,
        body_seconds: float,
        field: str,
        secrets_dir: Path,
    ) -> None:
        """`timeout_seconds` bounds a whole call, with its wait for a connection; `body_seconds` the response's body.

        `field` is the path in the document that errors name.
        """
        self._url, self._connections = _url(spec.url, field), connections
        self._timeout_seconds, self._body_seconds = timeout_seconds, body_seconds
        self._static = dict(spec.headers)
        self.credentials = Credentials(spec, field=field, secrets_dir=secrets_dir)

    def lacks(self) -> dict[Reference, str]:
        """Return the mounted files that no call can do without and that cannot be used yet, and why."""
        return self.credentials.lacks()

    async def start(self) -> None:
        """Make the pool; nothing is sent. Files that are lacking are awaited."""
        for why in self.lacks().values():
            log.error("secret_awaited", extra={"fields": {"problem": why}})
        self._session = aiohttp.ClientSession(
            connector=Pool(self._connections),
            request_class=Request,
            middlewares=(repeat,),
            timeout=aiohttp.ClientTimeout(total=self._timeout_seconds, sock_connect=CONNECT_SECONDS),
            headers={"User-Agent": "delayq", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),  # one task's response must not set cookies for another task
            auto_decompress=False,  # 64 KiB of gzip can expand to 64 MiB
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def send(self, task: Task, extra: Mapping[str, str] | None = None) -> Answer:
        """POST the task. Raises TimeoutError, aiohttp.ClientError, OSError, or Bury for an invalid content type.

        NotStarted if this process has no descriptor or memory for a connection. InvalidDocument if a file is lacking.
        """
        credentials, secret = self.credentials, self.credentials.headers()
        headers = self._static | secret | task_headers(task) | dict(extra or {})
        if key := credentials.key():
            headers[signature.HEADER] = signature.sign(
                key,
                seconds=int(time.time()),
                method="POST",
                target=self._url.raw_path_qs,
                headers=headers,
                body=task.body,
            )
        try:
            async with self._session.post(
                self._url, data=task.body, headers=headers, allow_redirects=False, ssl=credentials.trust()
            ) as response:
                return Answer(
                    status=response.status,
                    body=await _beginning(response, self._body_seconds),
                    retry_after=response.headers.get("Retry-After"),
                    date=response.headers.get("Date"),
                    location=response.headers.get("Location"),
                    secrets=tuple(secret.values()),
                )
        except aiohttp.ClientConnectorError as error:  # nothing was sent
            check_lack(error.os_error)
            raise
        except aiohttp.ClientResponseError as error:  # its message quotes a malformed response
            error.message = redacted(error.message, secret.values())
            raise


async def _beginning(response: aiohttp.ClientResponse, seconds: float) -> bytes:
    """Read at most 64 KiB for at most this time; close the connection of a longer response."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while len(body) < BODY_BYTES and (chunk := await response.content.read(BODY_BYTES - len(body))):
                body += chunk
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        log.debug("http_body_truncated", extra={"fields": {"status": response.status, "error": repr(error)}})
    if not response.content.at_eof():
        response.close()
    return bytes(body)


def _url(text: str, field: str) -> URL:
    try:
        return URL(text)
    except ValueError as error:
        raise HandlerSetupError(f"{field}.url", str(error)) from error
