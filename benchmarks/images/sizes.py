"""A: what a node pulls and keeps, and what it consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Target, at_most

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.images.archive import Image

MIB = 1 << 20
MOST = at_most(32)  # MiB to pull on top of a base that nodes have already
PACKAGES = "/site-packages/"
# Parts above the base image; the first that matches.
PARTS: dict[str, Callable[[str], bool]] = {
    "Kubernetes' client": lambda name: f"{PACKAGES}kubernetes/" in name,
    "pip": lambda name: f"{PACKAGES}pip" in name,
    "delayq": lambda name: f"{PACKAGES}delayq" in name,
    "other packages": lambda name: PACKAGES in name,
    "bytecode of Python's own modules": lambda name: name.startswith("usr/"),
    "the rest": lambda _name: True,
}


def figures(image: Image) -> list[Figure]:
    """Return sizes in MiB; the archive is the same at every look."""
    parts = dict.fromkeys(PARTS, 0)
    for layer in image.own:
        for member, _ in layer.members():
            parts[next(part for part, holds in PARTS.items() if holds(member.name))] += member.size
    sent = [layer.compressed for layer in image.layers]
    return [
        _size("to pull, with its base", sum(sent)),
        _size("to pull on top of the base", sum(sent[1:]), MOST),
        _size("  of which the last layer, that of the code", sent[-1]),
        _size("on disk, on top of the base", sum(parts.values())),
        *(_size(f"  of which {part}", size) for part, size in parts.items()),
    ]


def _size(name: str, size: int, target: Target | None = None) -> Figure:
    return Figure(bench="A", name=name, unit="MiB", runs=(size / MIB,), target=target)
