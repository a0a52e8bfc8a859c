"""The configuration file of the embedded Redis. It also keeps port and password for the next run of the directory."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME = "redis.conf"
CONFIG = """\
bind {bind}
port {port}
requirepass {password}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""
KEPT = re.compile(r"^port (?P<port>\d{4,5})\nrequirepass (?P<password>[0-9a-f]{32})$", re.MULTILINE)


@dataclass(frozen=True)
class Access:
    """How clients reach the embedded Redis."""

    port: int  # 0: not chosen yet
    password: str

    @classmethod
    def kept(cls, directory: Path) -> Self:
        """Return port and password of the last run of this directory, or a new password."""
        try:
            found = KEPT.search((directory / NAME).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            found = None
        if found is None:
            return cls(0, secrets.token_hex(16))
        return cls(int(found["port"]), found["password"])

    def write(self, directory: Path, bind: Sequence[str]) -> None:
        """Write the file, which only its owner can read."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(directory / NAME, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(CONFIG.format(bind=" ".join(bind), port=self.port, password=self.password))
