"""All cells of a run, some at a time, each lane in a thread of its own.

A lane's thread starts all that the lane has, for the kernel kills a process when the thread that started it ends.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.faults import report
from tests.faults.cell import Cell, play
from tests.faults.lane import Lane

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.fault import Fault
    from tests.faults.guards import GuardKind

    Order = tuple[GuardKind, Fault]


@dataclass
class Lanes:
    """What is still to be played, and what came of the rest."""

    orders: list[Order]
    transfers: int
    flavour: str
    directory: Path
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _next: int = 0

    def play(self, at_once: int) -> None:
        """Play all; Ctrl-C lets those end that have begun."""
        with ThreadPoolExecutor(at_once) as pool:
            lanes = [pool.submit(self._lane, self.directory / f"lane-{nth}") for nth in range(at_once)]
            try:
                for lane in lanes:
                    lane.result()
            finally:
                self._next = len(self.orders)

    def in_order(self) -> tuple[Cell, ...]:
        names = [(guard.name, fault.name) for guard, fault in self.orders]
        return tuple(self.cells[name] for name in names if name in self.cells)

    def _lane(self, directory: Path) -> None:
        directory.mkdir()
        lane = Lane.open(directory, self.flavour)
        try:
            while (order := self._take()) is not None:
                self._cell(lane, *order)
        finally:
            lane.close()

    def _take(self) -> Order | None:
        with self._lock:
            if self._next >= len(self.orders):
                return None
            self._next += 1
            return self.orders[self._next - 1]

    def _cell(self, lane: Lane, guard: GuardKind, fault: Fault) -> None:
        directory = self.directory / f"{guard.name}-{fault.name}"
        directory.mkdir()
        try:
            cell = play(lane, guard, fault, transfers=self.transfers, directory=directory)
        except Exception as error:  # noqa: BLE001  the others are worth playing
            said = f"{guard.name} × {fault.name}: {type(error).__name__}: {str(error).splitlines()[0]}"
            self._done(f"FAILED {said}, see {directory}")
            self.failed.append(said)
        else:
            self.cells[guard.name, fault.name] = cell
            self._done(report.line(cell))

    def _done(self, line: str) -> None:
        with self._lock:
            done = len(self.cells) + len(self.failed)
            print(f"[{done:>3}/{len(self.orders)}] {line}", flush=True)
