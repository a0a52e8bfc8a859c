"""Releases of Redis and Valkey: which may have a known vulnerability, and which read whose data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["redis", "valkey"]

CVE: Final = "CVE-2025-49844"
FIXED: Final[Mapping[Kind, Mapping[tuple[int, int], int]]] = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4, (9, 0): 0},
}
"""Release line → its first release with the fix. Other older lines have no fix; all newer lines have it."""
LAST_COMMON: Final = (7, 2)
"""Valkey began as Redis 7.2. It reads the data of Redis up to there; no Redis reads that of Valkey."""


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of `7.0.15`."""
    return tuple(int(part) for part in version.split("."))


@dataclass(frozen=True)
class Release:
    """A release of a server."""

    kind: Kind
    version: tuple[int, ...]

    @property
    def line(self) -> tuple[int, int]:
        """The first two numbers: releases of one line read each other's data."""
        major, minor = (*self.version, 0, 0)[:2]
        return major, minor

    @property
    def label(self) -> str:
        """`Redis 7.0.15`, or `Valkey 9.1.2`."""
        return f"{self.kind.title()} {'.'.join(map(str, self.version))}"

    @property
    def is_vulnerable(self) -> bool:
        """Whether it may have CVE; a distribution's build may have the fix under an older number."""
        lines, patch = FIXED[self.kind], (*self.version, 0, 0, 0)[2]
        return self.line <= max(lines) and patch < lines.get(self.line, patch + 1)

    def reads(self, data: Release) -> bool:
        """Whether it reads data that another release wrote. An older server refuses it, or starts empty beside it."""
        if self.kind == data.kind:
            return self.line >= data.line
        return self.kind == "valkey" and data.line <= LAST_COMMON
