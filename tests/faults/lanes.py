"""All cells of a run, some at a time, each on a lane of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tests.faults import report
from tests.faults.cell import Cell, play
from tests.faults.lane import Lane

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.faults import Fault
    from tests.faults.guards import GuardKind

    Order = tuple[GuardKind, Fault]


def play_all(
    orders: list[Order], transfers: int, flavour: str, directory: Path, *, at_once: int
) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """Return the cells in order, and why others failed. Ctrl-C lets those end that have begun."""
    free, failed = SimpleQueue[Lane](), list[str]()

    def cell_of(order: Order) -> Cell | None:
        guard, fault = order
        lane, own = free.get(), directory / f"{guard.name}-{fault.name}"
        own.mkdir()
        try:
            cell = play(lane, guard, fault, transfers=transfers, directory=own)
        except Exception as error:  # noqa: BLE001  the others are worth playing
            said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            failed.append(f"{guard.name} × {fault.name}: {said}")
            print(f"FAILED {failed[-1]}, see {own}", flush=True)
            return None
        finally:
            free.put(lane)
        print(report.line(cell), flush=True)
        return cell

    # The kernel kills a process when the thread that started it ends: a pool's threads end with the pool.
    with ExitStack() as stack:
        for nth in range(at_once):
            (directory / f"lane-{nth}").mkdir()
            free.put(stack.enter_context(closing(Lane.open(directory / f"lane-{nth}", flavour))))
        pool = stack.enter_context(ThreadPoolExecutor(at_once))
        playing = [pool.submit(cell_of, order) for order in orders]
        try:
            cells = [each.result() for each in playing]
        finally:
            pool.shutdown(cancel_futures=True)
    return tuple(cell for cell in cells if cell is not None), tuple(failed)
