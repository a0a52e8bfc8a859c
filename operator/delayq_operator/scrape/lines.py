"""Samples from lines of Prometheus' text format, ten times as fast as its own parser, which gets what is unusual. Pure.

1,000 queues are read every other second: at 30 µs a line that alone would take a core. What a scanner writes is always
the same plain form; whatever has another, such as an escape, is for the strict parser to accept or refuse.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.base.objects import Sample

_PLAIN = re.compile(
    r'([a-z_]+)\{((?:[a-z_]+="[^"\\]*"(?:,(?!\})|(?=\})))*)\} (NaN|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)'
)
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')


def parsed(lines: Iterable[str]) -> tuple[list[Sample], list[str]]:
    """Return the samples of plain lines, and the other lines."""
    found: list[Sample] = []
    others = []
    for line in lines:
        match = _PLAIN.fullmatch(line)
        if match is None:
            others.append(line)
        else:
            name, labels, value = match.groups()
            found.append((name, dict(_LABEL.findall(labels)), float(value)))
    return found, others
