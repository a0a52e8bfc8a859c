"""Waiting for what a cluster will do in its own time, which is longer where others use the machine too."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from tests.processes import poll_pause

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
POLL_SECONDS: Final = 0.05
LENIENCE: Final = 3
"""A promise of so many seconds is one on a machine with time for it; on a busy one it may take this much longer.

What goes wrong takes longer still: back-offs end at a minute, watches fall silent for as long, and a lost event never
comes.
"""


def lenient(seconds: float) -> float:
    """How long this may take on a busy machine, when it takes so long at most on a quiet one."""
    return seconds * LENIENCE


def eventually(
    look: Callable[[], T], *, timeout_s: float = 20, every_s: float = POLL_SECONDS, what: str = ""
) -> T:
    """What `look` finds, as soon as it is true; an AssertionError in it means: not yet.

    `timeout_s` is how long that takes at most where nothing else runs.
    """
    timeout_s = lenient(timeout_s)
    began = time.monotonic()
    while True:
        try:
            if found := look():
                return found
            seen = repr(found)
        except AssertionError as error:
            seen = str(error)
        waited_s = time.monotonic() - began
        if waited_s > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what or look.__name__}; last seen: {seen}")
        # Half as often as elsewhere: the API server takes 3 ms of a core for the answer.
        time.sleep(poll_pause(2 * waited_s, every_s))
