"""All cells of a run, some at a time, each lane in a thread of its own.

A lane's thread starts all that the lane has, for the kernel kills a process when the thread that started it ends.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from tests.faults import report
from tests.faults.cell import Cell, play
from tests.faults.lane import Lane

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.faults import Fault
    from tests.faults.guards import GuardKind

    Order = tuple[GuardKind, Fault]


@dataclass
class Lanes:
    """What came of the cells that have been played."""

    orders: list[Order]
    transfers: int
    flavour: str
    directory: Path
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _left: SimpleQueue[Order] = field(default_factory=SimpleQueue)

    def play(self, at_once: int) -> None:
        """Play all; Ctrl-C lets those end that have begun."""
        for order in self.orders:
            self._left.put(order)
        with ThreadPoolExecutor(at_once) as pool:
            lanes = [pool.submit(self._lane, self.directory / f"lane-{nth}") for nth in range(at_once)]
            try:
                for lane in lanes:
                    lane.result()
            finally:
                self._left = SimpleQueue()

    def in_order(self) -> tuple[Cell, ...]:
        names = [(guard.name, fault.name) for guard, fault in self.orders]
        return tuple(self.cells[name] for name in names if name in self.cells)

    def _lane(self, directory: Path) -> None:
        directory.mkdir()
        lane = Lane.open(directory, self.flavour)
        try:
            while True:
                line = self._cell(lane, *self._left.get_nowait())
                done = len(self.cells) + len(self.failed)
                print(f"[{done:>3}/{len(self.orders)}] {line}", flush=True)
        except Empty:
            return
        finally:
            lane.close()

    def _cell(self, lane: Lane, guard: GuardKind, fault: Fault) -> str:
        """Play one; returns what to print."""
        directory = self.directory / f"{guard.name}-{fault.name}"
        directory.mkdir()
        try:
            cell = play(lane, guard, fault, transfers=self.transfers, directory=directory)
        except Exception as error:  # noqa: BLE001  the others are worth playing
            self.failed.append(
                f"{guard.name} × {fault.name}: {type(error).__name__}: {str(error).splitlines()[0]}"
            )
            return f"FAILED {self.failed[-1]}, see {directory}"
        self.cells[guard.name, fault.name] = cell
        return report.line(cell)
