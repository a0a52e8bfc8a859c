"""Beginning anew in a forked child: connections are the parent's, locks may be held by threads that are not there."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What a child cannot use as it is."""

    def forked(self) -> None:
        """Begin anew; no other thread runs yet."""


_those: WeakSet[Forked] = WeakSet()


def remember(thing: Forked) -> None:
    """Have it told, in each child, before anybody can use it there."""
    _those.add(thing)


def _tell() -> None:
    for thing in list(_those):
        thing.forked()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_tell)
