"""The sizing table of docs/how-to/redis.md, made from results/scale.json: readers multiply measured figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import RESULTS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "redis.md"
FIRST, LAST = "<!-- sizing: written by make bench-scale -->\n", "<!-- end of sizing -->"
HEAD = (
    "| tasks | memory, 100 B each | memory, 1 KiB each | file | file rewritten in | restart | moving a shard |",
    "|---|---|---|---|---|---|---|",
)
MB, GB = 1e6, 1e9
BUSY = 1.0


def table(kept: Mapping[str, Any]) -> str:
    """Return what stands between the marks."""
    found: dict[str, dict[str, float]] = {}
    for figure in kept["figures"]:
        found.setdefault(figure["persistence"], {})[figure["name"]] = figure["value"]
    machine, load = kept["machine"], kept["machine"]["load_before"]
    head = f"Measured {kept['started'][:10]} with {machine['against']} on {machine['cores']} cores of {machine['cpu']}."
    if load > BUSY:
        head += f" **Other work used the machine (load {load}): bytes are right, seconds are too many.**"
    return "\n".join([head, "", *HEAD, *(_row(mode, values) for mode, values in found.items())]) + "\n"


def _row(mode: str, values: Mapping[str, float]) -> str:
    tasks = int(mode.partition(" ")[0].replace(",", ""))
    large = values.get("used_memory, 1,024 B of payload")
    moved = [
        values[name]
        for name in ("MIGRATE of delayed, one shard", "MIGRATE of tasks, one shard")
        if name in values
    ]
    cells = (
        f"{mode} shards" if " in " in mode else mode,
        _size(values["used_memory, 100 B of payload"] * tasks),
        _size(large * tasks) if large else "",
        _size(values["size of the file"] * 2**20),
        f"{values['AOF rewrite']:.2g} s",
        f"{values['restart until it serves']:.2g} s",
        f"{sum(moved):.2g} s" if moved else "too large",
    )
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _size(value: float) -> str:
    return f"{value / GB:.2g} GB" if value >= GB else f"{value / MB:.3g} MB"


def write() -> None:
    """Put the table of the figures that were kept into the page."""
    before, first, rest = PAGE.read_text().partition(FIRST)
    _, last, after = rest.partition(LAST)
    if not first or not last:
        raise ValueError(f"{PAGE}: expected {FIRST.strip()} … {LAST}, found neither or one")
    kept = json.loads((RESULTS / "scale.json").read_text())
    PAGE.write_text(before + first + table(kept) + last + after)
