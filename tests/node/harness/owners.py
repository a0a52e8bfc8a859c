"""Whose a node is: names that say which process made it, so that a later run finds the leftovers of dead ones."""

from __future__ import annotations

import os
import re
from itertools import count
from pathlib import Path
from typing import Final

PREFIX: Final = "delayq-node-"
NAME: Final = re.compile(rf"{PREFIX}(\d+)-(\d+)-(\d+)-\d+")
_numbers = count()


def started(pid: int) -> int | None:
    """When a process was started, in ticks since boot; None when there is none, or it only waits to be reaped."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])


def prefix(pid: int) -> str:
    """How the names begin that a process gives. Containers that share a checkout have each a process 1 of their own."""
    return f"{PREFIX}{_namespace()}-{pid}-"


def new_name() -> str:
    """A name that no other process will give, not even one that gets our number after us."""
    return f"{prefix(os.getpid())}{started(os.getpid())}-{next(_numbers)}"


def dead(name: str) -> bool:
    """Whether it is such a name, and who gave it is gone; False for those of other containers, who cannot be seen."""
    found = NAME.fullmatch(name)
    return found is not None and int(found[1]) == _namespace() and started(int(found[2])) != int(found[3])


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
