"""The directory that `delayq run` keeps its Redis in: whose it is, and what lies where. Not here: Redis itself."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from delayq.local.errors import DataDirUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

NAME = ".delayq"
URL_FILE = "redis.url"
TAKE_OVER_SECONDS = 15.0  # for the Redis of a killed run to write its file and end


class DataDir:
    """A data directory that is ours. The lock is a file that Redis inherits open: it ends when both have ended."""

    def __init__(self, path: Path, lock: int) -> None:
        """Use `take`."""
        self.path, self.lock = path, lock
        self.redis, self._url = path / "redis", path / URL_FILE

    @classmethod
    def take(cls, path: Path) -> Self:
        """Make and lock the directory; DataDirUnusable names what is in the way."""
        try:
            lock = _open(path)
            taken = cls(path, lock)
            _wait_for(lock, path)
            _sign(lock)
            taken.redis.mkdir(mode=0o700, exist_ok=True)
            taken._url.unlink(missing_ok=True)  # left by a run that was killed
        except OSError as error:
            raise DataDirUnusable(
                f"cannot use the data directory {path}: {error.strerror}", "--data-dir DIR takes another one"
            ) from error
        return taken

    def publish(self, url: str) -> None:
        """Let the other commands find our Redis."""
        _publish(self._url, url)

    def release(self) -> None:
        """Leave the directory to the next run."""
        with suppress(OSError):  # the data stay, whatever became of the rest
            self._url.unlink(missing_ok=True)
        os.close(self.lock)


@contextmanager
def published(path: Path, url: str) -> Iterator[None]:
    """Let the other commands find a Redis that is not ours, as long as a run uses it.

    The first run in a directory says where its Redis is, the last one takes that back. Where an embedded Redis is
    published, or nothing can be written, nothing is. There, and where the first run has another Redis, a warning says
    that commands need --redis.
    """
    lock = _share(path, url)
    if _published(path / URL_FILE) != url:
        fields = {
            "file": str(path / URL_FILE),
            "hint": "give other commands --redis, or they use another Redis",
        }
        log.warning("redis_not_published", extra={"fields": fields})
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):  # others use it still, or the directory is gone
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (path / URL_FILE).unlink(missing_ok=True)
            os.close(lock)


def _share(path: Path, url: str) -> int | None:
    """Return a shared lock on the directory; None without one."""
    with suppress(OSError):
        lock = _open(path)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _sign(lock)
                _publish(path / URL_FILE, url)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            return lock
    return None


def _published(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _sign(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _publish(file: Path, url: str) -> None:
    """Write a URL, which may hold a password: the file is ours alone to read, and never half written."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(url + "\n")
    new.replace(file)


def _open(path: Path) -> int:
    if not path.is_dir():
        path.mkdir(mode=0o700, parents=True)
        (path / ".gitignore").write_text("*\n")  # tasks are no source code
    return os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _wait_for(lock: int, path: Path) -> None:
    """Lock; wait a little when the run that held the lock is dead and only its Redis is still ending."""
    deadline = time.monotonic() + TAKE_OVER_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(lock)
            if owner is not None or time.monotonic() > deadline:
                who = "the Redis of an earlier run" if owner is None else f"another delayq run (pid {owner})"
                raise DataDirUnusable(
                    f"{who} uses the data directory {path}",
                    f"stop it, share its Redis with --redis \"$(cat '{path / URL_FILE}')\", "
                    "or give this one its own with --data-dir DIR",
                ) from None
            time.sleep(0.05)


def _owner(lock: int) -> int | None:
    """Return the process that wrote its number into the lock, if it lives."""
    written = os.pread(lock, 32, 0).strip()
    if not written.isdigit():
        return None
    try:
        os.kill(int(written), 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return int(written)
