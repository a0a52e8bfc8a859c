"""A value from a mounted file, which may change while the process runs."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import stat_result
    from pathlib import Path

    from delayq.contract.files import Reference

log = logging.getLogger(__name__)
T = TypeVar("T")


class Mounted(Generic[T]):
    """A value that is read again when its file changes: Kubernetes rotates a Secret by swapping a symlink.

    If the new file is missing or invalid, the last valid value stays, and a warning is logged.
    """

    _value: T

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        *,
        field: str,
        reference: Reference | None = None,
        variable: str = "",
        awaited: bool = False,
    ) -> None:
        """InvalidDocument when the first read fails, unless the file is `awaited`.

        `parse` raises it, too, without quoting the value. Errors name the `field` of the document, what to mount, and
        the environment `variable` that can be set instead.
        """
        self._instead = f"; or set ${variable} instead" if variable else ""
        self._path, self._parse, self._field, self.reference = path, parse, field, reference
        self._version: tuple[int, int, int] | None = None  # None: no value has been read yet
        self._problem = ""  # why the file cannot be read again, as the log has it
        if not awaited:
            self._read_first()

    @property
    def lack(self) -> str:
        """Why there is no value yet, after another try; empty once there is one."""
        try:
            self.read()
        except InvalidDocument as error:
            return str(error)
        return ""

    def _read_first(self) -> None:
        try:
            version = _version(self._path.stat())
            self._value = self._parse(_content(self._path))
        except OSError as error:
            what = self.reference or "the Secret"
            hint = f"mount {what} there, or set $DELAYQ_SECRETS_DIR to the directory of the Secrets{self._instead}"
            raise InvalidDocument(
                f"{self._field}: cannot read {self._path}: {error.strerror} ({hint})"
            ) from error
        except InvalidDocument as error:
            raise InvalidDocument(f"{self._field}: {self._path}: {error}") from None
        self._version = version

    def read(self) -> T:
        """Return the current value; the file is read only if its stat has changed.

        InvalidDocument if the file is awaited, and no value has been read yet.
        """
        if self._version is None:
            self._read_first()
            return self._value
        try:
            version = _version(self._path.stat())
            if version != self._version:
                content = _content(self._path)
                self._version = version
                self._value = self._parse(content)
            self._problem = ""
        except (OSError, InvalidDocument) as error:
            self._warn(str(error.strerror if isinstance(error, OSError) else error))
        return self._value

    def _warn(self, problem: str) -> None:
        """Log a problem once: the file may be looked at thousands of times a second."""
        if problem != self._problem:
            self._problem = problem
            fields = {"field": self._field, "path": str(self._path), "problem": problem}
            log.warning("secret_unreadable", extra={"fields": fields})


def _content(path: Path) -> bytes:
    """Read a file. To open a pipe without a writer would block the event loop."""
    if path.is_fifo():
        raise OSError(errno.EINVAL, "expected a file, got a pipe")
    return path.read_bytes()


def _version(stat: stat_result) -> tuple[int, int, int]:
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
