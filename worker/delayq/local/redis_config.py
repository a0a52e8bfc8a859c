"""The configuration file of the embedded Redis.

It also keeps port and password for the next run of the directory, and which server has written the data.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from delayq.local.releases import Release, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


NAME = "redis.conf"
APPEND_ONLY_DIR, APPEND_ONLY_FILE = "appendonlydir", "appendonly.aof"
CONFIG = """\
bind {bind}
port {port}
requirepass {password}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""
SNAPSHOTS: Final = ((11, (7, 2)), (12, (7, 4)))
"""The number of a snapshot's format, and the first Redis that writes it."""
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

    def write(self, directory: Path, bind: Sequence[str], writer: Release | None) -> None:
        """Write the file, which only its owner can read. `writer`: the server that wrote the data, None without any."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(directory / NAME, flags, 0o600), "w", encoding="utf-8") as file:
            if writer is not None:
                file.write(f"# server {writer.kind} {'.'.join(map(str, writer.version))}\n")
            login = {"port": self.port, "password": self.password}
            file.write(CONFIG.format(bind=" ".join(bind), **login))


def written_by(directory: Path) -> Release | None:
    """Return the server that wrote the data, None without any.

    An older delayq did not note it: then it is the oldest that may have written files of this form.
    """
    parts, file = directory / APPEND_ONLY_DIR, directory / APPEND_ONLY_FILE
    if not parts.is_dir() and not file.is_file():
        return None
    if found := SERVER.search(_text(directory)):
        return Release("valkey" if found[1] == "valkey" else "redis", numbers(found[2]))
    return _of_snapshot(parts) if parts.is_dir() else Release("redis", (5, 0))


def _of_snapshot(parts: Path) -> Release:
    """Return the oldest server that writes a base file of this form: one that begins with REDIS0012 is of Redis 7.4."""
    found = [(7, 0)]
    for file in parts.glob(f"{APPEND_ONLY_FILE}.*.base.rdb"):
        with file.open("rb") as content:
            magic = content.read(9)
        if magic.startswith(b"VALKEY"):
            return Release("valkey", (9, 0))
        if magic.startswith(b"REDIS") and magic[5:].isdigit():
            found += [version for least, version in SNAPSHOTS if int(magic[5:]) >= least]
    return Release("redis", max(found))


def _text(directory: Path) -> str:
    try:
        return (directory / NAME).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
