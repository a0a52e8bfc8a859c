"""A mounted secret that may be rotated while the worker runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delayq.handlers.base import HandlerSetupError
from delayq.handlers.signature import trim

if TYPE_CHECKING:
    from os import stat_result
    from pathlib import Path

log = logging.getLogger(__name__)


class SecretFile:
    """The bytes of a file, read again when the file has changed.

    Kubernetes rotates a mounted secret by swapping a symlink, so a stat per use is enough to notice. A file
    that is gone or empty in the middle of that keeps the last good value: deliveries go on, and the log says
    so.
    """

    def __init__(self, path: Path, *, field: str) -> None:
        """`field` is the path in the document that errors name."""
        self._path = path
        self._field = field
        self._value = b""
        self._seen: tuple[int, int, int] | None = None

    def open(self) -> None:
        """Read it for the first time; without a value there is nothing to sign with."""
        try:
            self._load(_version(self._path.stat()))
        except OSError as error:
            raise HandlerSetupError(self._field, f"cannot read {self._path}: {error.strerror}") from error
        if not self._value:
            raise HandlerSetupError(self._field, f"{self._path} is empty")

    def read(self) -> bytes:
        """Return the current value."""
        try:
            version = _version(self._path.stat())
            if version != self._seen:
                self._load(version)
        except OSError as error:
            self._warn(error.strerror or str(error))
        return self._value

    def _load(self, version: tuple[int, int, int]) -> None:
        value = trim(self._path.read_bytes())
        self._seen = version
        if value:
            self._value = value
        elif self._value:
            self._warn("empty")

    def _warn(self, problem: str) -> None:
        fields = {"field": self._field, "path": str(self._path), "problem": problem}
        log.warning("secret_unreadable", extra={"fields": fields})


def _version(stat: stat_result) -> tuple[int, int, int]:
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
