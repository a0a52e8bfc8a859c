"""The App of test_upgrade_kinds.py, imported by its workers."""

from __future__ import annotations

from delayq import App, Context
from recorder import note  # type: ignore[import-not-found]  # workers run in this folder

app = App()


@app.task
async def report(context: Context) -> None:
    note("start", context.task)
    note("end", context.task)
