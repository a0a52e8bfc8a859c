"""A value from a mounted file, which may change while the process runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import stat_result
    from pathlib import Path

log = logging.getLogger(__name__)
T = TypeVar("T")


class Mounted(Generic[T]):
    """A value that is read again when its file changes: Kubernetes rotates a Secret by swapping a symlink.

    If the new file is missing or invalid, the last valid value stays, and a warning is logged.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T], *, field: str) -> None:
        """InvalidDocument when the first read fails. `parse` raises it, too, without quoting the value.

        `field` is the path in the document that errors name.
        """
        self._path, self._parse, self._field = path, parse, field
        try:
            self._version = _version(path.stat())
            self._value = parse(path.read_bytes())
        except OSError as error:
            hint = "mount the Secret there, or set $DELAYQ_SECRETS_DIR to the directory of the Secrets"
            raise InvalidDocument(f"{field}: cannot read {path}: {error.strerror} ({hint})") from error
        except InvalidDocument as error:
            raise InvalidDocument(f"{field}: {path}: {error}") from None

    def read(self) -> T:
        """Return the current value; the file is read only if its stat has changed."""
        try:
            version = _version(self._path.stat())
            if version != self._version:
                content = self._path.read_bytes()
                self._version = version
                self._value = self._parse(content)
        except (OSError, InvalidDocument) as error:
            problem = error.strerror if isinstance(error, OSError) else str(error)
            fields = {"field": self._field, "path": str(self._path), "problem": problem}
            log.warning("secret_unreadable", extra={"fields": fields})
        return self._value


def _version(stat: stat_result) -> tuple[int, int, int]:
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
