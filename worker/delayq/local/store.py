"""The Redis of a run: embedded, or somebody else's at a URL."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from delayq.connection import Address, AsyncConnection
from delayq.local.embedded import Embedded
from delayq.local.ending import end
from delayq.local.panel import embedded_line

if TYPE_CHECKING:
    from delayq.local.datadir import DataDir
    from delayq.local.keeper import Keeper
    from delayq.local.urgency import Urgency

STOP_SECONDS = 30.0  # for Redis to write what it has not yet written


class Store(Protocol):
    """Where the tasks are."""

    url: str

    async def open(self) -> str:
        """Return the panel's line about it, once it serves."""

    async def close(self, urgency: Urgency) -> bool:
        """Let go of it; False when it had to be killed."""


class External:
    """A Redis that runs anyway."""

    def __init__(self, url: str) -> None:
        """Connect in open()."""
        self.url = url

    async def open(self) -> str:
        """Unavailable at once when it cannot be reached: a wrong URL must not look like a queue that runs."""
        connection = AsyncConnection(Address.from_url(self.url))
        try:
            [info] = await connection.send([("INFO",)])
        finally:
            await connection.close()
        facts = (
            dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(), re.MULTILINE))
            if isinstance(info, bytes)
            else {}
        )
        version = ".".join(facts.get("redis_version", "version unknown").split(".")[:2])
        on = {"1": "on", "0": "off"}.get(facts.get("aof_enabled", ""), "unknown")
        return f"{version} at {connection.address.where} (append-only file {on})"

    async def close(self, _urgency: Urgency) -> bool:
        """Leave it alone."""
        return True


class Own:
    """One that lives and ends with us."""

    def __init__(self, directory: DataDir) -> None:
        """NoServer when there is none."""
        self._directory, self._embedded = directory, Embedded(directory)

    @property
    def url(self) -> str:
        """Where it is, with the password."""
        return self._embedded.url

    @property
    def keeper(self) -> Keeper:
        """What keeps it running."""
        return self._embedded.keeper

    async def open(self) -> str:
        """Start it and let the other commands find it."""
        await self._embedded.start()
        self._directory.publish(self.url)
        return embedded_line(self._embedded.server, shown(self._directory.path))

    async def close(self, urgency: Urgency) -> bool:
        """Stop it: whoever hurries loses nothing by it, for its last act is to write its file."""
        return await end([self.keeper], STOP_SECONDS, urgency)


def shown(path: Path) -> Path:
    """Return the path as seen from here, if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else Path(os.path.normpath(path))
