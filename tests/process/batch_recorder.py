"""The App of test_suspects.py, imported by its workers."""

from __future__ import annotations

import os
from pathlib import Path

from delayq import App

POISON = 3
app = App()


@app.task(batch=8, timeout="60s")
def store(rows: list[int]) -> None:
    """Record half of the rows, end the process if the poison is among them, and record the others."""
    half = len(rows) // 2
    _record(rows[:half])
    if POISON in rows and "LEDGER_POISON" in os.environ:
        os._exit(1)
    _record(rows[half:])


def _record(rows: list[int]) -> None:
    with Path(os.environ["LEDGER"], "rows").open("a") as ledger:
        ledger.write("".join(f"{row}\n" for row in rows))
