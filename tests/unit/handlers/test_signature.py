"""Delayq-Signature: what verifies, and everything else that does not."""

from __future__ import annotations

from email.message import Message
from typing import TYPE_CHECKING, cast

import pytest
from delayq.handlers.signature import InvalidSignatureError, sign, verify
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = 1_700_000_000
KEY, BODY, TARGET = b"secret", b'{"order":7}', "/cancel?shop=paris"
V2 = "bb78d8a795fc07725310afb501aa371fe5d4b2174f02721434166d95a48cefbf"
SENT = {
    "Content-Type": "application/json",
    "Delayq-Attempt": "2",
    "Delayq-Task-Id": "order-7",
    "Idempotency-Key": "orders/order-7",
}


def signed(*, seconds: int = NOW, key: bytes = KEY, **changed: str) -> dict[str, str]:
    headers = SENT | {name.replace("_", "-"): value for name, value in changed.items()}
    value = sign(key, seconds=seconds, method="POST", target=TARGET, headers=headers, body=BODY)
    return {**headers, "Delayq-Signature": value}


def refused(
    headers: dict[str, str],
    body: bytes = BODY,
    *,
    secrets: tuple[bytes, ...] = (KEY,),
    target: str = TARGET,
    method: str = "POST",
) -> bool:
    try:
        verify(headers, body, secrets=secrets, now_seconds=NOW, target=target, method=method)
    except InvalidSignatureError:
        return True
    return False


@pytest.mark.parametrize("secrets", [["secret"], [KEY, "old"], KEY, "secret", [None]])
def test_secrets_that_are_not_bytes_are_an_error_of_the_receiver(secrets: object) -> None:
    """Also for a request without a signature: the first call shows it."""
    with pytest.raises(TypeError, match=r"^secrets: expected a list of bytes; .*encode\(\)") as raised:
        verify({}, BODY, secrets=cast("list[bytes]", secrets), target=TARGET)
    assert "old" not in str(raised.value)


def test_the_signature_is_what_the_documentation_says() -> None:
    """Receivers in other languages compute the same from the documented text; `openssl dgst -hmac` made it."""
    assert signed()["Delayq-Signature"] == f"t={NOW},v2={V2}"


@pytest.mark.parametrize("secret", [KEY, KEY + b"\n", KEY + b"\r\n"])
def test_a_signed_request_verifies(secret: bytes) -> None:
    """With the key as it is in the file, with or without the newline at its end, and header names in any case."""
    lowered = {name.lower(): value for name, value in signed().items()}
    assert not refused(lowered, secrets=(secret,))
    assert not refused(lowered, secrets=(b"new", secret)), "either of two, during a rotation"
    assert not refused(lowered | {"X-Forwarded-For": "10.0.0.1", "User-Agent": "delayq"})


@pytest.mark.parametrize(
    "change",
    [{name: value} for name in SENT for value in ("3", None)]
    + [{"Delayq-Token": "9"}, {"Delayq-Header-Role": "admin"}],
    ids=str,
)
def test_a_replay_with_another_header_or_without_one_is_refused(change: dict[str, str | None]) -> None:
    """What delayq sends cannot be exchanged, and nothing added that looks as if delayq had sent it."""
    assert refused({name: value for name, value in (signed() | change).items() if value is not None})


def test_a_replay_to_another_place_or_with_another_body_or_key_is_refused() -> None:
    """So is no key at all: with an empty secret, every sender could sign."""
    assert refused(signed(), method="PUT")
    assert refused(signed(), target="/refund?shop=paris")
    assert refused(signed(), target="/cancel")
    assert refused(signed(), b"{}")
    assert refused(signed(), secrets=(b"other",))
    assert refused(signed(), secrets=())
    assert refused(signed(key=b""), secrets=(b"\n",))


def test_a_signature_without_v2_is_refused() -> None:
    """Parts of other versions are ignored."""
    assert refused(signed() | {"Delayq-Signature": f"t={NOW}"})
    assert refused(signed() | {"Delayq-Signature": f"t={NOW},v1={V2}"})
    assert not refused(signed() | {"Delayq-Signature": f"t={NOW},v1=00,v2={V2}"})


@pytest.mark.parametrize("name", ["Idempotency-Key", "content-type", "Delayq-Signature"])
def test_a_replay_that_repeats_a_header_is_refused(name: str) -> None:
    """A receiver that looks the header up reads the first value, where the signature could be of the last."""
    received = Message()
    for each, value in [(name, "another"), *signed().items()]:
        received[each] = value
    with pytest.raises(InvalidSignatureError, match="given twice"):
        verify(cast("Mapping[str, str]", received), BODY, secrets=[KEY], now_seconds=NOW, target=TARGET)


def test_no_part_can_be_read_as_another() -> None:
    """A header's value cannot take the place of the next header, nor the last header that of the body."""
    joined = signed() | {"Delayq-Attempt": "2\ndelayq-task-id:order-7"}
    del joined["Delayq-Task-Id"]
    assert refused(joined)
    assert refused(signed(Delayq_Task_Id="a.1") | {"Delayq-Task-Id": "a", "Delayq-Attempt": "1.2"})


@pytest.mark.parametrize("age", [-301, 301])
def test_old_and_future_signatures_are_refused(age: int) -> None:
    """Five minutes either way: a recorded request is soon worthless."""
    assert refused(signed(seconds=NOW - age))
    assert not refused(signed(seconds=NOW - age // 301 * 300))


@given(st.text())
def test_no_header_breaks_the_check(header: str) -> None:
    """Any value is refused, and raises nothing else."""
    assert refused(signed() | {"Delayq-Signature": header})
    assert refused(signed() | {"Delayq-Signature": f"t={NOW},v2={header}"})
    assert refused(signed() | {"Delayq-Signature": f"t={header},v2=00"})
    assert refused({})
