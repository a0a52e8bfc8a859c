"""The configuration file of the embedded Redis.

It also keeps port and password for the next run of the directory, and which server has written the data.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from delayq.local.releases import Release, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME = "redis.conf"
APPEND_ONLY_DIR, APPEND_ONLY_FILE = "appendonlydir", "appendonly.aof"
CONFIG = """\
# server {kind} {version}
bind {bind}
port {port}
requirepass {password}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""
SERVER = re.compile(r"^# server (redis|valkey) ([\d.]+)$", re.MULTILINE)
KEPT = re.compile(r"^port (?P<port>\d{4,5})\nrequirepass (?P<password>[0-9a-f]{32})$", re.MULTILINE)


@dataclass(frozen=True)
class Access:
    """How clients reach the embedded Redis."""

    port: int  # 0: not chosen yet
    password: str

    @classmethod
    def kept(cls, directory: Path) -> Self:
        """Return port and password of the last run of this directory, or a new password."""
        found = KEPT.search(_text(directory))
        if found is None:
            return cls(0, secrets.token_hex(16))
        return cls(int(found["port"]), found["password"])

    def write(self, directory: Path, bind: Sequence[str], server: Release) -> None:
        """Write the file, which only its owner can read."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(directory / NAME, flags, 0o600), "w", encoding="utf-8") as file:
            version = ".".join(map(str, server.version))
            login = {"port": self.port, "password": self.password}
            file.write(CONFIG.format(kind=server.kind, version=version, bind=" ".join(bind), **login))


def written_by(directory: Path) -> Release | None:
    """Return the server that wrote the data, None without any. Of an older delayq, the oldest that may have."""
    parts, file = directory / APPEND_ONLY_DIR, directory / APPEND_ONLY_FILE
    if not parts.is_dir() and not file.is_file():
        return None
    if found := SERVER.search(_text(directory)):
        return Release("valkey" if found[1] == "valkey" else "redis", numbers(found[2]))
    return Release("redis", (7, 0) if parts.is_dir() else (5, 0))


def _text(directory: Path) -> str:
    try:
        return (directory / NAME).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
