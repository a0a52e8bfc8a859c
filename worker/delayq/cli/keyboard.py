"""Single keys from a terminal, without Enter and without echo; the terminal is left as it was found."""

from __future__ import annotations

import select
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Give a function that waits so many seconds for a key and returns it, or nothing."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios  # noqa: PLC0415 -- not on every platform
    import tty  # noqa: PLC0415 -- as above

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _pressed(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""
