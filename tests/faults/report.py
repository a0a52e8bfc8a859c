"""A whole run: whether all is as promised, kept as JSON, and its table in docs/explanation/guarantees.md."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.faults.cell import LATE_SECONDS, Cell
from tests.faults.crew import LEASE_SECONDS
from tests.faults.faults import FAULTS
from tests.faults.guards import GUARDS

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "benchmarks" / "results" / "faults.json"
PAGE: Final = ROOT / "docs" / "explanation" / "guarantees.md"
FIRST: Final = "<!-- fault ledger: written by make faults -->"
LAST: Final = "<!-- end of fault ledger -->"
SUMS: Final = ("expected", "lost", "duplicated", "early", "late")


@dataclass(frozen=True, slots=True)
class Result:
    """What `make faults` found."""

    started: str
    versions: dict[str, str]
    cells: tuple[Cell, ...]
    failed: tuple[str, ...] = ()
    """Cells that did not come to their end, and why."""

    @property
    def guards(self) -> list[str]:
        return list(dict.fromkeys(cell.guard for cell in self.cells))

    @property
    def faults(self) -> list[str]:
        return list(dict.fromkeys(cell.fault for cell in self.cells))

    def of(self, guard: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.guard == guard]

    def broken(self) -> list[str]:
        """Promises that were not kept."""
        return [*self.failed, *(each for cell in self.cells for each in broken(cell))]

    def keep(self) -> None:
        document = {
            "started": self.started,
            "versions": self.versions,
            "cells": [asdict(cell) for cell in self.cells],
        }
        KEPT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def kept(cls) -> Result:
        found: dict[str, Any] = json.loads(KEPT.read_text())
        cells = tuple(Cell(**cell) for cell in found["cells"])
        return cls(found["started"], found["versions"], cells)


def broken(cell: Cell) -> list[str]:
    """Nothing is lost and nothing is early, under every guard; nothing is doubled where the guard is exact."""
    counts = {"lost": cell.lost, "early": cell.early}
    if GUARDS[cell.guard].exact:
        counts["duplicated"] = cell.duplicated
    found = [f"{count} {what}" for what, count in counts.items() if count]
    if not cell.balanced:
        found.append("the accounts are not what the effects say")
    return [f"{cell.guard} × {cell.fault}: {each}" for each in found]


def line(cell: Cell) -> str:
    """One cell, as soon as it is known."""
    counts = ", ".join(f"{getattr(cell, name)} {name}" for name in SUMS)
    unbalanced = "" if cell.balanced else ", ACCOUNTS NOT BALANCED"
    return f"{cell.guard} × {cell.fault}: {counts}{unbalanced} ({cell.seconds:.0f} s)"


def markdown(result: Result) -> str:
    """Both tables, and what to know to read them."""
    duplicated = _rows(["fault", *result.guards], _duplicated(result))
    sums = _rows(["guard", "", *(f"effects {SUMS[0]}", *SUMS[1:])], _sums(result))
    return f"""{_made(result)}

Transfers that took effect twice:

{duplicated}

All faults together:

{sums}

Early and late are by Redis' clock. Early: started before the due time. A task that was claimed right before that
clock was set back is compared with the time that it showed then. Late: started more than {LATE_SECONDS} s after the
due time (the lease of {LEASE_SECONDS} s, and 5 s). The steps of that clock are subtracted."""


def _made(result: Result) -> str:
    some = result.cells[0]
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return (
        f"Measured {result.started[:10]} with {versions}.\n"
        f"In each cell {some.expected} transfers: {some.hit} are at the fault's point when it strikes, a few others "
        "wherever they happen to be."
    )


def _duplicated(result: Result) -> Iterable[list[str]]:
    for fault in result.faults:
        found = {cell.guard: cell for cell in result.cells if cell.fault == fault}
        cells = [str(found[guard].duplicated) if guard in found else "" for guard in result.guards]
        yield [FAULTS[fault].meaning, *cells]


def _sums(result: Result) -> Iterable[list[str]]:
    for guard in result.guards:
        sums = [sum(getattr(cell, name) for cell in result.of(guard)) for name in SUMS]
        yield [guard, GUARDS[guard].meaning, *(f"{each:,}" for each in sums)]


def _rows(head: list[str], rows: Iterable[list[str]]) -> str:
    ruler = ["---"] + ["--:" if name else "---" for name in head[1:]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ruler, *rows))


def kept() -> str:
    """What the page shows between the two lines."""
    return PAGE.read_text().partition(FIRST)[2].partition(LAST)[0].strip("\n")


def write(result: Result) -> None:
    before, _, rest = PAGE.read_text().partition(FIRST)
    PAGE.write_text(f"{before}{FIRST}\n{markdown(result)}\n{LAST}{rest.partition(LAST)[2]}")
