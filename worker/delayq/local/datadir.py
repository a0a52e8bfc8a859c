"""The directory that `delayq run` keeps its Redis in: whose it is, and what lies where. Not here: Redis itself."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from delayq.local.errors import DataDirUnusable

if TYPE_CHECKING:
    from pathlib import Path

NAME = ".delayq"
URL_FILE = "redis.url"
TAKE_OVER_SECONDS = 15.0  # for the Redis of a killed run to write its file and end


class DataDir:
    """A data directory that is ours. The lock is a file that Redis inherits open: it ends when both have ended."""

    def __init__(self, path: Path, lock: int) -> None:
        """Use `take`."""
        self.path, self.lock = path, lock
        self.redis = path / "redis"
        self._url = path / URL_FILE

    @classmethod
    def take(cls, path: Path) -> Self:
        """Make and lock the directory; DataDirUnusable names what is in the way."""
        try:
            lock = _open(path)
            taken = cls(path, lock)
            _wait_for(lock, path)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            taken.redis.mkdir(mode=0o700, exist_ok=True)
            taken._url.unlink(missing_ok=True)  # left by a run that was killed
        except OSError as error:
            raise DataDirUnusable(
                f"cannot use the data directory {path}: {error.strerror}", "--data-dir DIR takes another one"
            ) from error
        return taken

    def publish(self, url: str) -> None:
        """Let the other commands find our Redis. The file is ours alone to read, and never half written."""
        new = self._url.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(url + "\n")
        new.replace(self._url)

    def release(self) -> None:
        """Leave the directory to the next run."""
        with suppress(OSError):  # the data stay, whatever became of the rest
            self._url.unlink(missing_ok=True)
        os.close(self.lock)


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
                    "stop it, or give this one its own with --data-dir DIR",
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
