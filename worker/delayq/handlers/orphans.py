"""Reap the orphans that process 1 of a container inherits: processes that left their command's group.

After they end, they stay zombies until their parent, which is process 1, reaps them. The caller must know all children
that are waited for elsewhere: once reaped here, their exit code is lost.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


def collect(known: Collection[int]) -> None:
    """Reap ended children, except those in `known`, which are waited for elsewhere."""
    if os.getpid() == 1 and _any_ended():
        for pid in _ended_children():
            if pid not in known:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _any_ended() -> bool:
    """Check without reaping: one system call instead of several for each process."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _ended_children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just gone
            # The fields after the command's name, which can contain brackets.
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == os.getpid():
                yield int(path.parent.name)
