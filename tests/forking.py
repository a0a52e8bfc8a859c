"""Processes that are forked from one that has imported all that they need: an import takes up to a second of a core."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT: Final = multiprocessing.get_context("forkserver")


@contextmanager
def forking(*modules: str) -> Iterator[None]:
    """A process that has imported these, whose forks start at once. Nothing else ends it while this one lives."""
    CONTEXT.set_forkserver_preload(list(modules))
    child = CONTEXT.Process(target=os.getpid)
    child.start()
    child.join()
    try:
        yield
    finally:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it has no public way to end
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # nor has this one
