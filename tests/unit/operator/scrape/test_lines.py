"""The quick parser takes what processes write, as the strict one reads it, and leaves everything else to that one."""

from __future__ import annotations

import math

import pytest
from delayq_operator.base.metrics import samples
from delayq_operator.scrape.lines import parsed

from tests.unit.operator.scrape.test_backlog import BUSY, scanner_text


def test_what_a_scanner_writes_is_read_as_the_strict_parser_reads_it() -> None:
    lines = [
        line
        for line in scanner_text({0: True, 7: False}, ["evicts"], **BUSY).decode().splitlines()
        if "{" in line
    ]
    found, others = parsed(lines)
    strict = list(samples("\n".join(lines)))
    assert others == []
    assert len(found) == len(lines)
    for one, other in zip(found, strict, strict=True):
        assert one[:2] == other[:2]
        assert one[2] == other[2] or (math.isnan(one[2]) and math.isnan(other[2]))


@pytest.mark.parametrize("value", ["0", "12", "1.5", "1.79527262379e+09", "1e-05", "NaN"])
def test_numbers(value: str) -> None:
    ((name, labels, number),), others = parsed([f'a_b{{c="d",e=""}} {value}'])
    assert (name, labels, others) == ("a_b", {"c": "d", "e": ""}, [])
    assert repr(number) == repr(float(value))


@pytest.mark.parametrize(
    "line",
    [
        "a 1",
        'a{b="c"}1',
        'a{b="c"} +Inf',
        'a{b="c"} -1',
        'a{b="c"} 1_000',
        'a{b="c"} 1 1700000000',
        'a{b="\\"c"} 1',
        'a{b="c",} 1',
        'a{b="c"d="e"} 1',
        'a{b="c"',
        'a{b="c"} 1 # {} 1',
        'a{b="c"} 0x10',
        "",
    ],
)
def test_the_unusual_is_for_the_strict_parser(line: str) -> None:
    assert parsed([line]) == ([], [line])
