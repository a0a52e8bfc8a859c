"""Tests of task code: a queue of its own for each test, on an embedded Redis, with time that a test moves.

With pytest, the fixture `delayq_queue` makes one (plugin.py).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delayq.testing.queue import Queue, Run, ScheduledTask
    from delayq.testing.server import Server

__all__ = ["Queue", "Run", "ScheduledTask", "Server"]
_MODULES: Final = {"Queue": "queue", "Run": "queue", "ScheduledTask": "queue", "Server": "server"}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- any object of the module
    """Import on first use: pytest loads the plugin in this package at each start, and most runs need no queue."""
    if name in _MODULES:
        return getattr(import_module(f"delayq.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'delayq.testing' has no attribute {name!r}")
