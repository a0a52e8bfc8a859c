"""What one cell after the other is played on: a PostgreSQL and, once one is asked for, a machine behind cables.

As many lanes as cells run at a time; none depends on another.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from tests.databases import PASSWORD, USER, Postgres
from tests.faults.machine import LOOPBACK, Remote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class ReachablePostgres(Postgres):
    """Listens where cables end, too."""

    also: str = ""

    def _argv(self) -> list[str]:
        return [*super()._argv(), "-c", f"listen_addresses={LOOPBACK},{self.also}".rstrip(",")]


@dataclass
class Lane:
    """Servers that are too slow to start, or too much trouble, for each cell."""

    dir: Path
    flavour: str
    postgres: ReachablePostgres
    _remote: Remote | None = None
    _names: Iterator[int] = field(default_factory=count)

    @classmethod
    def open(cls, directory: Path, flavour: str) -> Lane:
        return cls(directory, flavour, ReachablePostgres.start(directory / "postgres"))

    def new_database(self) -> str:
        """Where the next cell's accounts are; returns its name."""
        if not self.postgres.process.alive:  # a cell failed between the two halves of its fault
            self.postgres.launch()
        name = f"bank{next(self._names)}"
        self.postgres.create_database(name)
        return name

    def database_url(self, name: str, host: str = LOOPBACK) -> str:
        return f"postgresql+psycopg://{USER}:{PASSWORD}@{host}:{self.postgres.port}/{name}"

    def remote(self) -> Remote:
        """The machine behind cables."""
        if self._remote is None:
            self._remote = Remote.start()
            self.postgres.also = str(self._remote.cables["database"].here)
            self.postgres.restart()
        return self._remote

    def close(self) -> None:
        if self._remote is not None:
            self._remote.stop()
        with suppress(Exception):  # a cell may have left it half dead; its directory goes anyway
            self.postgres.stop()
