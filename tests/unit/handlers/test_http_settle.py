"""What statuses and Retry-After mean, as pure functions."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from delayq.errors import Bury, Retry
from delayq.handlers.http_post import encode
from delayq.handlers.http_response import Answer, retry_after_ms, settle
from hypothesis import example, given
from hypothesis import strategies as st

NOW = 1_700_000_000.0
NOON, ONE_PAST = "Sun, 06 Nov 1994 12:00:00 GMT", "Sun, 06 Nov 1994 12:01:00 GMT"
DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        ("120", None, 120_000),
        ("86401", None, DAY_MS),
        ("9" * 5_000, None, DAY_MS),
        ("0", None, None),
        ("²", None, None),
        (None, NOON, None),
        (ONE_PAST, NOON, 60_000),
        (NOON, ONE_PAST, None),
        ("Tue, 14 Nov 2023 22:13:30 GMT", None, 10_000),
        ("Tue, 14 Nov 2023 22:13:30 GMT", "yesterday", 10_000),
        ("Tue, 99 Nov 2023 22:13:30 GMT", None, None),
    ],
)
def test_retry_after_is_a_delay_of_at_most_a_day(
    value: str | None, date: str | None, expected: int | None
) -> None:
    """Seconds, or a date by the receiver's own clock; nothing usable leaves the backoff to the queue."""
    assert retry_after_ms(value, date=date, now_seconds=NOW) == expected


@given(status=st.integers(100, 999), retry_after=st.text(), body=st.binary(max_size=300), location=st.text())
def test_every_answer_settles_the_task(status: int, retry_after: str, body: bytes, location: str) -> None:
    """Ack, Retry or Bury by the hundreds of the status, and no header or body raises anything else."""
    answer = Answer(status=status, body=body, retry_after=retry_after, date=retry_after, location=location)
    outcome: type[Exception] | None = None
    try:
        settle(answer, now_seconds=NOW)
    except (Retry, Bury) as error:
        outcome = type(error)
        title = str(error).split("\n")[0]
        assert title.startswith(f"HTTPStatusError: {status} ")
    expected = None if 200 <= status < 300 else Retry if status in {408, 429} or status >= 500 else Bury
    assert outcome is expected


@given(st.text())
@example("UTF-8''caf%C3%A9")
def test_a_header_value_can_be_read_back(value: str) -> None:
    """Any text of a producer: one line of visible ASCII carries it, and there is one way to decode it."""
    sent = encode(value)
    assert sent.isascii()
    assert sent == "" or (sent.isprintable() and sent == sent.strip())
    prefix, _, rest = sent.partition("''")
    assert (unquote(rest, errors="surrogatepass") if prefix == "UTF-8" and rest else sent) == value
