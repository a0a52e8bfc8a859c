"""Django's ORM in the coroutine functions of an App. Plain functions need nothing (handlers/stale_connections.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from delayq.app import TaskRun
from delayq.handlers.python import is_async

__all__ = ["fresh_connections"]


def __dir__() -> list[str]:
    return __all__


_close = sync_to_async(close_old_connections)


@asynccontextmanager
async def fresh_connections(run: TaskRun) -> AsyncIterator[None]:
    """Close database connections that broke, or are older than CONN_MAX_AGE: `app.around_run(fresh_connections)`.

    Django does so when a request begins and when it ends, which a worker has none of. This does it before and after
    each run of a coroutine function, in the thread in which Django runs the ORM for all of them. Around plain functions
    it does nothing: delayq does the same for them in their own threads, with or without this middleware.
    """
    if not is_async(run.kind.function):
        yield
        return
    await _close()
    try:
        yield
    finally:
        with suppress(Exception):  # the work is done; what is wrong fails the next task before it begins
            await _close()
