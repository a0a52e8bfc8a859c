"""Where a guard's database is said: in a URL, in an engine that the user has made, or in a mounted Secret."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from delayq.errors import InvalidDocument
from delayq.guards.sql import urls

if TYPE_CHECKING:
    from os import stat_result
    from pathlib import Path

    from sqlalchemy import URL

log = logging.getLogger(__name__)


class Source(Protocol):
    """Something that knows the URL, which may change while the process runs."""

    def url(self) -> URL:
        """Return the URL as it is now."""


class Fixed:
    """A URL that stays."""

    def __init__(self, text: str) -> None:
        """InvalidDocument when it is none."""
        self._url = urls.parse(text)

    def url(self) -> URL:
        return self._url


class Mounted:
    """A URL in a file, read again when the file has changed: Kubernetes rotates a Secret by swapping a symlink.

    What cannot be used then is logged and passed over, and the last good URL stays.
    """

    def __init__(self, path: Path, *, field: str) -> None:
        """`field` is the path in the document that errors name."""
        self._path, self._field = path, field
        try:
            self._version = _version(path.stat())
            text = path.read_text()
        except OSError as error:
            raise InvalidDocument(f"{field}: cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise InvalidDocument(f"{field}: {path}: {urls.EXPECTED}") from None
        self._url = self._parsed(text)

    def url(self) -> URL:
        """Return the current one; a stat tells whether to read."""
        try:
            version = _version(self._path.stat())
            if version != self._version:
                text = self._path.read_text()
                self._version = version
                self._url = self._parsed(text)
        except (OSError, UnicodeDecodeError, InvalidDocument) as error:
            problem = error.strerror if isinstance(error, OSError) else "not a database URL that can be used"
            fields = {"field": self._field, "path": str(self._path), "problem": problem}
            log.warning("secret_unreadable", extra={"fields": fields})
        return self._url

    def _parsed(self, text: str) -> URL:
        try:
            url = urls.parse(text)
            urls.aio(url) or urls.plain(url)
        except InvalidDocument as error:
            raise InvalidDocument(f"{self._field}: {self._path}: {error}") from None
        return url


def _version(stat: stat_result) -> tuple[int, int, int]:
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
