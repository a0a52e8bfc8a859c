"""scalars: what a plain word or number of YAML is on Kubernetes; tests/offline/test_kubectl_yaml.py asks kubectl."""

from __future__ import annotations

import math

import pytest
from delayq.contract.scalars import from_json, plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30:00", "12:30:00"),
        ("9:30", "9:30"),
        ("2026-01-01", "2026-01-01"),
        ("1e3", 1000.0),
        ("5e-6", 5e-06),
        ("1e999", "1e999"),
        ("0o17", 15),
        ("017", 15),
        ("08", 8.0),
        ("-0x1f", -31),
        ("0b11", 3),
        ("1_000", 1000),
        ("18446744073709551615", 18446744073709551615),
        ("+0xffffffffffffffff", "+0xffffffffffffffff"),
        ("y", True),
        ("Off", False),
        ("yEs", "yEs"),
        ("", None),
        (".5", 0.5),
        ("-.inf", -math.inf),
    ],
)
def test_a_plain_scalar_is_what_kubectl_reads(text: str, value: object) -> None:
    found = plain(text)
    assert (type(found), found) == (type(value), value)


def test_a_number_of_a_megabyte_is_read_at_once() -> None:
    """Python's int() would take minutes."""
    assert plain("9" * (1 << 20)) == "9" * (1 << 20)
    assert plain("0x" + "f" * (1 << 20)) == "0x" + "f" * (1 << 20)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (1.0, 1),
        (-0.0, 0),
        (0.1, 0.1),
        (2**63 - 1, 2**63 - 1),
        (2**64 - 1, 18446744073709552000),
        (1e20, 10**20),
        (1e21, 1e21),
    ],
)
def test_a_number_is_the_one_that_the_api_server_returns(number: float, written: float) -> None:
    found = from_json(number)
    assert (type(found), found) == (type(written), written)
