"""The `Delayq-Signature` header: made by the worker, checked by receivers.

Standard library only, so that a receiver without delayq may take this file as it is. What is signed: the
unix seconds, Delayq-Task-Id and Delayq-Attempt as sent, each followed by a newline, then the body. Header
values cannot hold a newline, so no two requests read the same (with dots between, task `a.1` attempt 2 and
task `a` attempt 1 could). The key is the secret without the newline that editors and `echo` leave at its
end.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEADER = "Delayq-Signature"
TASK_ID = "Delayq-Task-Id"
ATTEMPT = "Delayq-Attempt"
TOLERANCE_SECONDS = 300


class InvalidSignatureError(Exception):
    """The request was not signed with any of the secrets, or not recently."""


def sign(key: bytes, *, seconds: int, task_id: str, attempt: str, body: bytes) -> str:
    """Return the header's value; `task_id` and `attempt` are the texts of their headers, as sent."""
    return f"t={seconds},v1={_digest(trim(key), body, seconds=seconds, task_id=task_id, attempt=attempt)}"


def verify(
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Sequence[bytes],
    tolerance_seconds: int = TOLERANCE_SECONDS,
    now_seconds: float | None = None,
) -> None:
    """Return when one of `secrets` (two, during a rotation) signed this request; else InvalidSignatureError.

    `body` is the raw bytes as received. A repeated request inside the tolerance verifies again: remember
    `Idempotency-Key` to tell repeats apart, as for any task that is delivered twice.
    """
    given = {name.lower(): value for name, value in headers.items()}
    seconds, digests = _parse(given.get(HEADER.lower(), ""))
    now = time.time() if now_seconds is None else now_seconds
    if abs(now - seconds) > tolerance_seconds:
        raise InvalidSignatureError(
            f"signed {now - seconds:.0f} s ago, accepted are {tolerance_seconds} s either way"
        )
    keys = [key for key in map(trim, secrets) if key]
    if not keys:
        raise InvalidSignatureError(
            "no secret to check against: an empty one would accept anybody's signature"
        )
    task_id, attempt = given.get(TASK_ID.lower(), ""), given.get(ATTEMPT.lower(), "")
    wanted = [_digest(key, body, seconds=seconds, task_id=task_id, attempt=attempt) for key in keys]
    # Every pair is compared, in constant time, whichever matches.
    matches = [hmac.compare_digest(want, got) for want in wanted for got in digests]
    if not any(matches):
        raise InvalidSignatureError("no secret gives this signature")


def trim(secret: bytes) -> bytes:
    """Return the key: the secret without newlines at its end."""
    return secret.rstrip(b"\r\n")


def _digest(key: bytes, body: bytes, *, seconds: int, task_id: str, attempt: str) -> str:
    signed = f"{seconds}\n{task_id}\n{attempt}\n".encode("utf-8", "surrogateescape") + body
    return hmac.new(key, signed, hashlib.sha256).hexdigest()


def _parse(header: str) -> tuple[int, list[str]]:
    """Read `t=…,v1=…[,v1=…]`; parts with other names are of a later version and skipped."""
    seconds, digests = "", []
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if name == "t":
            seconds = value
        elif name == "v1" and value.isascii():  # compare_digest refuses other text
            digests.append(value)
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 16) or not digests:  # noqa: PLR2004 -- year 31M
        raise InvalidSignatureError(f"no usable {HEADER} header")
    return int(seconds), digests
