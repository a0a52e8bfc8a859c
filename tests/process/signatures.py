"""Two Apps with one kind, whose signature changed without a new version. Imported by workers."""

from __future__ import annotations

from delayq import App, Context
from recorder import note  # type: ignore[import-not-found]  # workers run in this folder

old, new = App(), App()


@old.task(name="remind")
async def remind(context: Context, order: int) -> None:  # noqa: ARG001 -- its signature is what counts
    note("old", context.task)


@new.task(name="remind")
def remind_by(context: Context, order: int, channel: str) -> None:  # noqa: ARG001 -- its signature is what counts
    note("new", context.task)
