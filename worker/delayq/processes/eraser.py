"""`delayq erase`: deletes a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.processes import missing
from delayq.processes.runtime import counted, serve
from delayq.reaper.eraser import Eraser
from delayq.service import metrics
from delayq.service.shutdown import run

if TYPE_CHECKING:
    from delayq.processes.runtime import Setting


def run_eraser(setting: Setting, patience_seconds: float) -> None:
    """Run until the queue is erased; DelayQError when that failed."""
    run(_eraser(setting, patience_seconds))


async def _eraser(setting: Setting, patience_seconds: float) -> None:
    await missing.wait("erase", [setting], patience_seconds)
    eraser = Eraser(
        *(setting.commands, setting.address),
        patience_seconds=patience_seconds,
        uid=setting.queue.metadata.uid or "",
    )
    [loop] = eraser.loops
    erase = eraser.erase
    families = counted(
        lambda: metrics.eraser_families(
            eraser.counters, erase.shards, loop.down, [erase.other] if erase.other else ()
        )
    )
    await serve("eraser", eraser, [setting], families)
