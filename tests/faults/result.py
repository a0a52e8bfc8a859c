"""A whole run: its cells, what it was made with, whether all is as promised. Kept as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.faults.cell import Cell
from tests.faults.guards import GUARDS

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "benchmarks" / "results" / "faults.json"


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
    """Nothing is lost and nothing is early, whatever the guard; nothing is doubled where the guard is exact."""
    counts = {"lost": cell.lost, "early": cell.early}
    if GUARDS[cell.guard].exact:
        counts["duplicated"] = cell.duplicated
    found = [f"{count} {what}" for what, count in counts.items() if count]
    if not cell.balanced:
        found.append("the accounts are not what the effects say")
    return [f"{cell.guard} × {cell.fault}: {each}" for each in found]
