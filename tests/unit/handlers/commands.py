"""Handlers that run small shell scripts, for the tests of exec handlers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from delayq.contract import ExecHandler as ExecSpec
from delayq.handlers.exec import ExecHandler

from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def shell(
    script: str, *arguments: str, grace_seconds: float = 5.0, **spec: object
) -> AsyncIterator[ExecHandler]:
    """A handler that runs the script with /bin/sh."""
    async with command(
        "/bin/sh", "-c", script, "sh", *arguments, grace_seconds=grace_seconds, **spec
    ) as handler:
        yield handler


@asynccontextmanager
async def command(*argv: str, grace_seconds: float = 5.0, **spec: object) -> AsyncIterator[ExecHandler]:
    exec_spec = document({"exec": {"command": list(argv)} | spec}).spec.handler.exec
    assert isinstance(exec_spec, ExecSpec)
    handler = ExecHandler(exec_spec, grace_seconds=grace_seconds)
    await handler.start()
    try:
        yield handler
    finally:
        await handler.close()
