"""What answers repeat of a request's secrets, and how it may be escaped."""

from __future__ import annotations

import html
import json
import time
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from delayq.handlers.text import LEAST_CHARS, redacted
from hypothesis import assume, given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

SECRETS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=8, max_size=40).map(str.strip)
ESCAPES: list[Callable[[str], str]] = [
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    lambda text: "".join(
        char if char.isalnum() or char in "-._~" else f"\\u{ord(char):04X}" for char in text
    ),
    lambda text: quote(text, safe=""),
    quote_plus,
    html.escape,
    lambda text: html.escape(text, quote=False).replace("'", "&#039;"),
]


@pytest.mark.parametrize("escape", ESCAPES)
@given(secret=SECRETS)
def test_no_form_of_a_secret_is_left(escape: Callable[[str], str], secret: str) -> None:
    assume(len(secret) >= LEAST_CHARS)
    assert redacted(f"<{escape(secret)}>", [secret]) == "<[redacted]>"


@pytest.mark.parametrize("last", "&%\\<\"'/")
@pytest.mark.parametrize("escape", ESCAPES)
def test_an_escape_at_the_end_leaves_nothing(escape: Callable[[str], str], last: str) -> None:
    """Escapes of several kinds begin with the character itself: &amp; and %25 do, and two backslashes."""
    secret = f"0000000{last}"
    assert redacted(f"<{escape(secret)}>{secret}b{escape(secret)}; 25", [secret]) == (
        "<[redacted]>[redacted]b[redacted]; 25"
    )


@pytest.mark.parametrize(
    ("text", "secrets", "expected"),
    [
        ("no s3cret-1, no Bearer s3cret-1", ["Bearer s3cret-1"], "no [redacted], no [redacted]"),
        ("status 1 of tenant 1", ["tenant 1"], "status 1 of [redacted]"),
        ("every word", ["", "Key ", "e", "every"], "every word"),
        ("s3cret-12 and s3cret-1", ["s3cret-1", "s3cret-12"], "[redacted] and [redacted]"),
    ],
)
def test_what_is_no_secret_stays(text: str, secrets: list[str], expected: str) -> None:
    """The last word counts, too: services repeat a token without its scheme. Shorter ones than six do not."""
    assert redacted(text, secrets) == expected


def test_escapes_may_be_mixed() -> None:
    assert redacted(r"<a\/b%2Fc&#x3D;d>", ["a/b/c=d"]) == "<[redacted]>"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("\\" * 65_536 + "y", "\\" * 40 + "x"),
        ("/" * 65_536, "/" * 1000 + "x"),
        ("/" * 65_536, "/" * 1000),
        ("%2F" * 21_845, "/" * 16_384),
        (r"\/&lt;%2F" * 7000, "a=b; " * 3200),
        ("&#" + "0" * 65_000, "a=b; " * 800),
    ],
)
def test_a_hostile_answer_takes_no_longer(text: str, secret: str) -> None:
    """It is read in the event loop: the time must be linear, for a long secret as for a short one."""
    before = time.process_time()
    redacted(text, [secret])
    assert time.process_time() - before < 0.5, "0.1 s; 2.7 to 60 s if each place of the text is compared"
