"""The pytest plugin: fixtures that pytest finds wherever delayq is installed. It imports nothing until one is used."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.testing import Queue


@pytest.fixture(scope="session")
def delayq_redis_url() -> Iterator[str]:
    """The URL of a Redis for this test run, started for it. Override the fixture to name another one."""
    from delayq.testing import Server  # noqa: PLC0415 -- see above

    with Server() as server:
        yield server.url


@pytest.fixture
def delayq_queue(delayq_redis_url: str) -> Iterator[Callable[..., Queue]]:
    """Return a function that makes the queue of an App for this test; further arguments are those of Queue."""
    from delayq.testing import Queue  # noqa: PLC0415 -- see above

    with ExitStack() as stack:
        yield lambda app, *given, **named: stack.enter_context(Queue(app, delayq_redis_url, *given, **named))
