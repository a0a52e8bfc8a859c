"""Checks that are HTTP services: the same POST as to a handler, with one more header.

200 OK
{"verdict": "complete", "reason": "refunded on 2 May"}
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from delayq.errors import InvalidDocument
from delayq.handlers.http_post import BODY_BYTES, Post
from delayq.recovery.checks.base import Answer, CheckFailed, verdict_of

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract.check import HttpCheck as HttpSpec
    from delayq.handlers.http_response import Answer as Response
    from delayq.protocol.envelope import Task

FIELD = "spec.recovery.check.http"
HEADERS: Final = {"Delayq-Check": "1"}


class HttpCheck(Post):
    """A service, and the pool of connections to it."""

    stuck = 0

    def __init__(
        self, spec: HttpSpec, *, connections: int, timeout_seconds: float, secrets_dir: Path
    ) -> None:
        """See Post."""
        super().__init__(
            spec,
            connections=connections,
            timeout_seconds=timeout_seconds,
            body_seconds=timeout_seconds,
            field=FIELD,
            secrets_dir=secrets_dir,
        )

    async def ask(self, task: Task) -> Answer:
        """Send the task, and parse the response. CheckFailed while a mounted file is lacking."""
        try:
            return read(await self.send(task, HEADERS))
        except InvalidDocument as error:
            raise CheckFailed(str(error)) from None


def read(response: Response) -> Answer:
    """Parse a response; CheckFailed when it has no verdict."""
    if response.status != HTTPStatus.OK:
        raise CheckFailed(f"expected status 200, got {response.status}: {response.excerpt()}")
    if len(response.body) >= BODY_BYTES:
        raise CheckFailed(f"expected an answer of less than {BODY_BYTES:,} bytes, got {response.excerpt()}")
    try:
        found = json.loads(response.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "verdict" not in found:
        raise CheckFailed(f'expected JSON {{"verdict": …, "reason": …}}, got {response.excerpt()}')
    verdict = verdict_of(found["verdict"], shown=lambda name: response.redacted(repr(name)))
    return Answer(verdict, response.redacted(str(found.get("reason") or "")))
