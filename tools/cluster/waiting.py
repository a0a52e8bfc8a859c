"""What a process and all below it wait for in the kernel: why something takes long to end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

MOST_NAMED: Final = 5


class Found(NamedTuple):
    """A process, by /proc."""

    pid: int
    parent: int
    title: str


def waiting(pid: int) -> str:
    """Name the process and some of those below it, with their states: `ip (D, netdev_wait_allrefs_any)`."""
    there = list(_processes())
    family, names = {pid}, []
    for each in sorted(there):  # a child has most often a higher number than its parent
        if each.pid in family or each.parent in family:
            family.add(each.pid)
            names.append(each.title)
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _processes() -> list[Found]:
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has gone meanwhile
            name, _, fields = (directory / "stat").read_text().partition("(")[2].rpartition(")")
            state, parent = fields.split()[:2]
            place = (directory / "wchan").read_text()
            found.append(Found(int(directory.name), int(parent), f"{name} ({state}, {place})"))
    return found
