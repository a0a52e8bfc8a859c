"""Delayq-Signature: what verifies, and everything else that does not."""

from __future__ import annotations

import pytest
from delayq.handlers.signature import InvalidSignatureError, sign, verify
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_700_000_000
KEY, BODY = b"secret", b'{"order":7}'
KNOWN = "2e37467af1037a731c4fd6c5165128fe75b2a0f2dbdfcb70018f12b8014cf083"


def signed(task_id: str = "order-7", attempt: str = "2", *, seconds: int = NOW) -> dict[str, str]:
    signature = sign(KEY, seconds=seconds, task_id=task_id, attempt=attempt, body=BODY)
    return {"Delayq-Signature": signature, "Delayq-Task-Id": task_id, "Delayq-Attempt": attempt}


def refused(headers: dict[str, str], body: bytes = BODY, *, secrets: tuple[bytes, ...] = (KEY,)) -> bool:
    try:
        verify(headers, body, secrets=secrets, now_seconds=NOW)
    except InvalidSignatureError:
        return True
    return False


def test_the_signature_is_what_the_documentation_says() -> None:
    """Receivers in other languages compute the same from the documented text; `openssl dgst -hmac` made this."""
    assert signed()["Delayq-Signature"] == f"t={NOW},v1={KNOWN}"


@pytest.mark.parametrize("secret", [KEY, KEY + b"\n", KEY + b"\r\n"])
def test_a_signed_request_verifies(secret: bytes) -> None:
    """With the key as it is in the file, with or without the newline at its end, and header names in any case."""
    lowered = {name.lower(): value for name, value in signed().items()}
    assert not refused(lowered, secrets=(secret,))


def test_during_a_rotation_either_secret_will_do() -> None:
    """The receiver accepts both, whichever the worker has read so far."""
    assert not refused(signed(), secrets=(b"new", KEY))


@pytest.mark.parametrize("change", ["Delayq-Task-Id", "Delayq-Attempt"])
def test_a_signature_is_for_one_attempt_of_one_task(change: str) -> None:
    """Neither header can be exchanged."""
    assert refused(signed() | {change: "3"})


def test_another_body_or_key_is_refused() -> None:
    """So is no key at all: an empty secret would let anybody sign."""
    assert refused(signed(), b"{}")
    assert refused(signed(), secrets=(b"other",))
    assert refused(signed(), secrets=())
    assert refused(
        {"Delayq-Signature": sign(b"", seconds=NOW, task_id="", attempt="", body=BODY)}, secrets=(b"\n",)
    )


def test_no_part_can_be_read_as_another() -> None:
    """What was signed for task a.1 does not pass for task a with a longer attempt, or any other split."""
    moved = signed("a.1", "2") | {"Delayq-Task-Id": "a", "Delayq-Attempt": "1.2"}
    assert refused(moved)


@pytest.mark.parametrize("age", [-301, 301])
def test_old_and_future_signatures_are_refused(age: int) -> None:
    """Five minutes either way: a recorded request is soon worthless."""
    assert refused(signed(seconds=NOW - age))
    assert not refused(signed(seconds=NOW - age // 301 * 300))


@given(st.text())
def test_no_header_breaks_the_check(header: str) -> None:
    """Whatever arrives is refused, and raises nothing else."""
    assert refused(signed() | {"Delayq-Signature": header})
    assert refused(signed() | {"Delayq-Signature": f"t={NOW},v1={header}"})
    assert refused(signed() | {"Delayq-Signature": f"t={header},v1=00"})


def test_a_request_without_headers_is_refused() -> None:
    """Unsigned is not verified."""
    assert refused({})
