"""The `Delayq-Signature` header: the worker makes it, receivers verify it.

It uses only the standard library, so that a receiver without delayq can copy this file. The header reads
`t=<unix seconds>,v2=<hex>`. The digest is an HMAC-SHA256. Its key is the secret without the final newline, which
editors and `echo` add.

v2 covers the whole request: a line each for `v2`, the seconds, the method and the target (path and query, as
sent), then a line `name:value` for Content-Type, Idempotency-Key and every Delayq-* header except this one, names
in lower case and in alphabetical order, then an empty line and the body. No line can hold a newline, so two
requests never give the same text.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

HEADER = "Delayq-Signature"
TOLERANCE_SECONDS = 300
SIGNED = frozenset({"content-type", "idempotency-key"})  # and all that begin with PREFIX
PREFIX = "delayq-"


class InvalidSignatureError(Exception):
    """The request was not signed with any of the secrets, or not recently."""


def sign(
    key: bytes, *, seconds: int, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> str:
    """Return the header's value. `target` is path and query as sent; `headers` are those of the request."""
    given = {name.lower(): value for name, value in headers.items()}
    return f"t={seconds},v2={_digest(trim(key), _text(given, seconds, method, target), body)}"


def verify(
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Sequence[bytes],
    target: str,
    method: str = "POST",
    tolerance_seconds: int = TOLERANCE_SECONDS,
    now_seconds: float | None = None,
) -> None:
    """Return when one of `secrets` (two, during a rotation) signed this request; else InvalidSignatureError.

    `body` is the raw bytes as received, `target` the path and query of the document's URL, as sent. A repeated request
    inside the tolerance verifies again: to detect it, store Idempotency-Key, as for any task that is delivered twice.
    """
    if not all(isinstance(each, bytes) for each in secrets):
        raise TypeError("secrets: expected a list of bytes; encode text with .encode()")
    given = _given(headers)
    seconds, digests = _parse(given.get(HEADER.lower(), ""))
    now = time.time() if now_seconds is None else now_seconds
    if abs(now - seconds) > tolerance_seconds:
        raise InvalidSignatureError(
            f"signed {now - seconds:.0f} s ago, expected at most {tolerance_seconds} s before or after now"
        )
    keys = [key for key in map(trim, secrets) if key]
    if not keys:
        raise InvalidSignatureError("expected a non-empty secret: with an empty one, every sender could sign")
    text = _text(given, seconds, method, target)
    # Compare all pairs, each in constant time, so that the time does not depend on which one matches.
    matches = [hmac.compare_digest(_digest(key, text, body), got) for key in keys for got in digests]
    if not any(matches):
        raise InvalidSignatureError("the signature matches no secret")


def trim(secret: bytes) -> bytes:
    """Return the key: the secret without newlines at its end."""
    return secret.rstrip(b"\r\n")


def _given(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers by lower-case name. Refuse repeated ones: the receiver might read a value that is not verified."""
    given: dict[str, str] = {}
    for name, value in ((name.lower(), value) for name, value in headers.items()):
        if name in given and _covered(name):
            raise InvalidSignatureError(f"{name} is given twice")
        given[name] = value
    return given


def _covered(name: str) -> bool:
    return name in SIGNED or name.startswith(PREFIX)


def _text(given: Mapping[str, str], seconds: int, method: str, target: str) -> str:
    names = sorted(filter(_covered, given))
    lines = [f"{name}:{given[name]}" for name in names if name != HEADER.lower()]
    if any(
        "\n" in line for line in [target, *lines]
    ):  # a folded header: two requests could give the same text
        raise InvalidSignatureError("a header contains a newline")
    return "\n".join(["v2", str(seconds), method.upper(), target, *lines, "", ""])


def _digest(key: bytes, text: str, body: bytes) -> str:
    return hmac.new(key, text.encode("utf-8", "surrogateescape") + body, hashlib.sha256).hexdigest()


def _parse(header: str) -> tuple[int, list[str]]:
    """Parse the seconds and the digests: `t=…,v2=…`. There may be several, and parts of other versions."""
    seconds, digests = "", []
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if name == "t":
            seconds = value
        elif name == "v2" and value.isascii():  # compare_digest refuses other text
            digests.append(value)
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 16) or not digests:  # noqa: PLR2004 -- year 31M
        raise InvalidSignatureError(f"no usable {HEADER} header with v2")
    return int(seconds), digests
