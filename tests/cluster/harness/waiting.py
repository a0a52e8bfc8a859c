"""Waiting for what a cluster will do in its own time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
POLL_SECONDS: Final = 0.05


def eventually(
    look: Callable[[], T], *, timeout_s: float = 20, every_s: float = POLL_SECONDS, what: str = ""
) -> T:
    """What `look` finds, as soon as it is true; an AssertionError in it means: not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if found := look():
                return found
            seen = repr(found)
        except AssertionError as error:
            seen = str(error)
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what or look.__name__}; last seen: {seen}")
        time.sleep(every_s)
