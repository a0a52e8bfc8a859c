"""Map an HTTP response to ack, Retry or Bury. Pure; `http.py` does the I/O."""

from __future__ import annotations

import email.utils
from dataclasses import dataclass, field
from datetime import UTC
from http import HTTPStatus

from delayq.errors import Bury, Retry
from delayq.handlers.text import excerpt, redacted

EXCERPT_CHARS = 200
RETRY_AFTER_MAX_SECONDS = 24 * 3600
_RETRIED = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class HTTPStatusError(Exception):
    """The receiver answered with a status that is not a success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The relevant parts of a response."""

    status: int
    body: bytes  # its beginning
    retry_after: str | None
    date: str | None  # the receiver's clock, to which a date in Retry-After refers
    location: str | None
    secrets: tuple[str, ...] = field(default=(), repr=False)  # of the request, which services repeat

    def redacted(self, text: str) -> str:
        """Return a text of this answer as dead letters may show it."""
        return redacted(text, self.secrets)

    def excerpt(self, text: str | None = None) -> str:
        """Return the beginning of such a text on one line; by default of the body."""
        shown = self.redacted(self.body.decode(errors="replace") if text is None else text)
        return excerpt(shown.encode(errors="replace"), EXCERPT_CHARS)


def settle(answer: Answer, *, now_seconds: float, credentials: bool = False) -> None:
    """Return to ack, else raise Retry or Bury.

    With mounted `credentials` 401 is retried: they may have been replaced, and are read again before the next attempt.
    """
    status = answer.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    cause = HTTPStatusError(f"{status} {_phrase(status)}")
    # The first line is the same for all responses with this status: dead letters are grouped by it.
    title = f"HTTPStatusError: {cause}"
    passes = status in _RETRIED or (credentials and status == HTTPStatus.UNAUTHORIZED)
    if passes or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        delay_ms = retry_after_ms(answer.retry_after, date=answer.date, now_seconds=now_seconds)
        raise Retry(title + _detail(answer), delay_ms=delay_ms) from cause
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise Bury(f"{title}: redirects are not followed{_target(answer)}") from cause
    raise Bury(title + _detail(answer)) from cause


def retry_after_ms(value: str | None, *, date: str | None, now_seconds: float) -> int | None:
    """Return the delay that Retry-After asks for, at most a day; None (the queue's backoff) without one.

    0 and past dates count as none: otherwise all attempts could fail within a second.
    """
    seconds = _seconds_after(value.strip(), date, now_seconds) if value else None
    if seconds is None or seconds <= 0:
        return None
    return int(min(seconds, RETRY_AFTER_MAX_SECONDS) * 1000)


def _seconds_after(value: str, date: str | None, now_seconds: float) -> float | None:
    if value.isascii() and value.isdigit():
        return float(value[-10:]) if value[:-10].strip("0") == "" else float("inf")
    until = _timestamp(value)
    if until is None:
        return None
    now = _timestamp(date) if date else None
    return until - (now_seconds if now is None else now)


def _timestamp(value: str) -> float | None:
    try:
        when = email.utils.parsedate_to_datetime(value)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _phrase(status: int) -> str:
    """Return the standard reason phrase: the receiver's own may differ between responses."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown Status"


def _detail(answer: Answer) -> str:
    text = answer.excerpt()
    return f"\n{text}" if text else ""


def _target(answer: Answer) -> str:
    return f"\nLocation: {answer.excerpt(answer.location)}" if answer.location else ""
