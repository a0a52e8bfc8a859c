"""Loops and log events for the tests of handlers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from tests.unit.handlers.support import Lifeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 -- the hook's signature
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Workers run on uvloop where there is one; the two loops differ in children and in how connections end."""
    if item.path.name.startswith(("test_exec", "test_http_keepalive")):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
async def lifeline(tmp_path: Path) -> AsyncIterator[Lifeline]:
    line = await Lifeline(tmp_path / "lifeline").open()
    yield line
    line.close()


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[dict[str, Any]]]:
    """The fields of every event of a name that the handlers logged."""
    caplog.set_level(logging.DEBUG, logger="delayq.handlers")
    return lambda name: [vars(record)["fields"] for record in caplog.records if record.getMessage() == name]
