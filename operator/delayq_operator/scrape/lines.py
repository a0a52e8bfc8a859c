"""Samples from lines of Prometheus' text format, ten times as fast as prometheus_client's parser. Pure.

1,000 queues are read every other second: at 30 µs a line that alone would take a core. What delayq's processes write is
always in this form, without timestamps or exemplars. Escapes in labels stay: no label that counts has any.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.base.objects import Sample

_VALUE = r'"((?:[^"\\]|\\.)*)"'
_LABEL = re.compile(f"([a-z_]+)={_VALUE}")
_LINE = re.compile(
    rf"([a-z_]+)\{{((?:[a-z_]+={_VALUE}(?:,(?!\}})|(?=\}})))*)\}} "
    r"(NaN|[+-]Inf|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
)


def parsed(lines: Iterable[str]) -> list[Sample]:
    """Return the sample of each line; ValueError for a line that is none."""
    found: list[Sample] = []
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError("no sample")
        found.append((match[1], dict(_LABEL.findall(match[2])), float(match[4])))
    return found
