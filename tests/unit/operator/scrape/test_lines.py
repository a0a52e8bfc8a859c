"""The quick parser reads what processes write as Prometheus' own parser does, and refuses everything else."""

from __future__ import annotations

import math

import pytest
from delayq_operator.scrape.lines import parsed

from tests.exposition import samples
from tests.unit.operator.scrape.test_backlog import BUSY, scanner_text

VALUES = ["0", "12", "1.5", "1.79527262379e+09", "1e-05", "-1.0", "NaN", "+Inf", "-Inf"]


def test_it_reads_what_prometheus_own_parser_does() -> None:
    text = scanner_text({0: True, 7: False}, ["evicts"], **BUSY).decode()
    lines = [line for line in text.splitlines() if "{" in line]
    lines += [f'a_b{{c="d",e=""}} {value}' for value in VALUES]
    for (name, labels, number), strict in zip(parsed(lines), samples("\n".join(lines)), strict=True):
        assert (name, labels) == strict[:2]
        assert number == strict[2] or (math.isnan(number) and math.isnan(strict[2]))


@pytest.mark.parametrize(
    "line",
    [
        *["", "a 1", 'a{b="c"}1', 'a{b="c"', 'a{b="c"} 1_000', 'a{b="c"} 0x10', 'a{b="c"} 1 1700000000'],
        *['a{b="c",} 1', 'a{b="c"d="e"} 1', 'a{b="\\"} 1', 'a{b="c"} 1 # {} 1'],
    ],
)
def test_what_no_process_writes_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no sample"):
        parsed([line])
