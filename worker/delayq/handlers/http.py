"""Handlers that are HTTP services: one POST per run of a task.

Not here: the headers (`http_request.py`), what an answer means (`http_response.py`), the signature
(`signature.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from delayq.contract.files import secret_path
from delayq.errors import Retry
from delayq.handlers import http_request, signature
from delayq.handlers.base import HandlerSetupError
from delayq.handlers.guarded import apart
from delayq.handlers.http_response import Answer, settle
from delayq.handlers.secret import SecretFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from delayq.contract import HttpHandler as HttpSpec
    from delayq.guards import Guard
    from delayq.handlers.base import HandlerCall
    from delayq.message import Task

log = logging.getLogger(__name__)

FIELD = "spec.handler.http"
CONNECT_SECONDS = 10  # a black hole must not hold a slot for the whole of a long time limit
KEEPALIVE_SECONDS = 4  # below the 5 s after which many servers hang up: a POST on a dying connection fails
BODY_BYTES = 64 * 1024  # read to here to use the connection again; a longer answer costs a new connection
BODY_SECONDS = 1  # the status has decided already: an answer that drips must not hold the slot


class HTTPTimeoutError(Exception):
    """The receiver did not answer in time."""


class HttpHandler:
    """A pool of connections to one URL."""

    joins = False

    def __init__(self, spec: HttpSpec, *, timeout_seconds: float, secrets_dir: Path) -> None:
        """`timeout_seconds` bounds a whole run, the wait for a connection included."""
        self._url = _url(spec.url)
        self._static = _static(spec.headers)
        self._max_connections = spec.max_connections
        self._timeout_seconds = timeout_seconds
        self._secret = _secret(spec, secrets_dir)

    def under(self, guard: Guard[Any]) -> HandlerCall:
        """Call the service inside the guard's block."""
        return apart(self.call, guard)

    async def start(self) -> None:
        """Read the secret and make the pool; nothing is sent."""
        if self._secret:
            self._secret.open()
        limit = self._max_connections
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit, limit_per_host=limit, keepalive_timeout=KEEPALIVE_SECONDS
            ),
            timeout=aiohttp.ClientTimeout(total=self._timeout_seconds, sock_connect=CONNECT_SECONDS),
            headers={"User-Agent": "delayq", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),  # what one task's answer sets is no other task's business
            auto_decompress=False,  # 64 KiB of gzip may be 64 MiB of answer
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def call(self, task: Task) -> None:
        """Deliver the task and settle it by the answer."""
        headers = self._static | http_request.headers(task)
        if self._secret:
            headers[signature.HEADER] = self._sign(self._secret.read(), headers, task.body)
        try:
            answer = await self._post(task.body, headers)
        except TimeoutError as error:
            cause = HTTPTimeoutError(str(error) or f"no answer within {self._timeout_seconds:g} s")
            raise Retry(f"HTTPTimeoutError: {cause}") from cause
        except (aiohttp.ClientError, OSError) as error:
            raise Retry(f"{type(error).__name__}: {error}") from error
        settle(answer, now_seconds=time.time())

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        async with self._session.post(
            self._url, data=body, headers=headers, allow_redirects=False
        ) as response:
            return Answer(
                status=response.status,
                body=await _beginning(response),
                retry_after=response.headers.get("Retry-After"),
                date=response.headers.get("Date"),
                location=response.headers.get("Location"),
            )

    def _sign(self, key: bytes, headers: Mapping[str, str], body: bytes) -> str:
        task_id, attempt = headers[signature.TASK_ID], headers[signature.ATTEMPT]
        return signature.sign(key, seconds=int(time.time()), task_id=task_id, attempt=attempt, body=body)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """Read at most 64 KiB for at most a second; what is not read is cut off with its connection."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while len(body) < BODY_BYTES and (chunk := await response.content.read(BODY_BYTES - len(body))):
                body += chunk
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        log.debug("http_body_cut", extra={"fields": {"status": response.status, "error": repr(error)}})
    if not response.content.at_eof():
        response.close()
    return bytes(body)


def _url(text: str) -> URL:
    try:
        return URL(text)
    except ValueError as error:
        raise HandlerSetupError(f"{FIELD}.url", str(error)) from error


def _static(headers: Mapping[str, str]) -> dict[str, str]:
    for name in headers:
        if http_request.reserved(name):
            raise HandlerSetupError(f"{FIELD}.headers", f'"{name}" is set by delayq itself')
    return dict(headers)


def _secret(spec: HttpSpec, secrets_dir: Path) -> SecretFile | None:
    ref = spec.signing_secret_ref
    if ref is None:
        return None
    return SecretFile(secret_path(secrets_dir, ref.name, ref.key), field=f"{FIELD}.signingSecretRef")
