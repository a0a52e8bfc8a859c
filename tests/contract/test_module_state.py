"""What modules keep while they run is shared by threads, and copied by a fork: each such thing says why it may be."""

from __future__ import annotations

import threading
from importlib import import_module
from pkgutil import walk_packages
from types import GeneratorType
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import delayq

MUTABLE = (dict, list, set, GeneratorType, WeakKeyDictionary, WeakSet, WeakValueDictionary, threading.local)
SAFE = {
    "delayq.connection.sync._connections": "one atomic call adds; only a new child reads it, when it has one thread",
    "delayq.connection.discovery._shared": "by event loop, of which each thread has its own and a child a new one",
    "delayq.guards.base._finishing": "holds tasks of event loops by atomic calls, and nothing reads it",
    "delayq.handlers.threads._current": "local to a thread",
}


def test_no_module_keeps_what_threads_or_forks_would_share_unknowingly() -> None:
    """Tables in capitals are written once; `__all__` and the like belong to Python."""
    names = {each.name for each in walk_packages(delayq.__path__, "delayq.")} - {"delayq.__main__"}
    modules = [import_module(name) for name in sorted(names)]
    found = {
        f"{module.__name__}.{name}"
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, MUTABLE) and not name.startswith("__") and name.upper() != name
    }
    assert found == set(SAFE)
