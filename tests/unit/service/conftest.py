"""The server of probes runs on uvloop, too: the two loops write and close differently."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 -- the hook's signature
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Workers run on uvloop where there is one."""
    if item.path.name == "test_http_server.py":
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
