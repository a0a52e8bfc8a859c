"""The data directory of `delayq run`: its lock, and the file with the URL of its Redis."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from delayq.contract.files import RUN_URL
from delayq.local.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"  # the host in the URL of an embedded Redis, wherever else it listens
NOTED_FILE = "noted"  # a command has said that it uses the Redis of RUN_URL
TAKE_OVER_SECONDS = 15.0  # for the Redis of a killed run to save its data and exit


class DataDir:
    """A locked data directory. Redis inherits the open lock file: the lock lasts until both processes exit."""

    def __init__(self, path: Path, lock: int) -> None:
        """Use `take`."""
        self.path, self.lock = path, lock
        self.redis, self.url_file = path / "redis", path / RUN_URL

    @classmethod
    def take(cls, path: Path) -> Self:
        """Create and lock the directory; CannotRun on errors."""
        try:
            lock = _open(path)
            taken = cls(path, lock)
            _wait_for(lock, path)
            _sign(lock)
            taken.redis.mkdir(mode=0o700, exist_ok=True)
            taken.url_file.unlink(missing_ok=True)  # of a killed run
        except OSError as error:
            raise CannotRun(
                f"cannot use the data directory {path}: {error.strerror}", "--data-dir DIR uses another one"
            ) from error
        return taken

    def publish(self, url: str) -> None:
        """Write the URL of the embedded Redis for other commands."""
        _publish(self.url_file, url)

    def release(self) -> None:
        """Release the directory for the next run."""
        with suppress(OSError):  # then the next run deletes it
            self.url_file.unlink(missing_ok=True)
        os.close(self.lock)


@contextmanager
def published(path: Path, url: str) -> Iterator[None]:
    """Write the URL of an external Redis for other commands, while a run uses it.

    The first run in a directory writes the file, the last one deletes it. The file does not change if an embedded Redis
    uses the directory. If the file has another URL, a warning says that other commands need --redis.
    """
    lock = _share(path, url)
    if _published(path / RUN_URL) != url:
        fields = {
            "file": str(path / RUN_URL),
            "hint": "give other commands --redis, or they use another Redis",
        }
        log.warning("redis_not_published", extra={"fields": fields})
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):  # other runs still use it, or the directory was deleted
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (path / RUN_URL).unlink(missing_ok=True)
            os.close(lock)


def _share(path: Path, url: str) -> int | None:
    """Return a shared lock on the directory; None without one."""
    with suppress(OSError):
        lock = _open(path)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _sign(lock)
                _publish(path / RUN_URL, url)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            return lock
    return None


def _published(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _sign(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _publish(file: Path, url: str) -> None:
    """Write a URL, which may contain a password, atomically to a file that only its owner can read."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(url + "\n")
    new.replace(file)


def _open(path: Path) -> int:
    if not path.is_dir():
        path.mkdir(mode=0o700, parents=True)
        (path / ".gitignore").write_text("*\n", encoding="utf-8")
    return os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _wait_for(lock: int, path: Path) -> None:
    """Lock the directory. If only the Redis of a dead run still holds the lock, wait for it."""
    deadline = time.monotonic() + TAKE_OVER_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(lock)
            if owner is not None or time.monotonic() > deadline:
                who = "the Redis of an earlier run" if owner is None else f"another delayq run (pid {owner})"
                raise CannotRun(
                    f"{who} uses the data directory {path}",
                    f"stop it, share its Redis with --redis \"$(cat '{path / RUN_URL}')\", "
                    "or use another directory with --data-dir DIR",
                ) from None
            time.sleep(0.05)


def _owner(lock: int) -> int | None:
    """Return the PID in the lock file, if that process runs."""
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
