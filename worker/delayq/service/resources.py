"""Whether a run failed before its handler began, because this process lacks threads, processes, descriptors or memory.

That is a failure of the worker and not of the task. Everything that prepares a run decides it here: handlers, checks of
expired leases, and guards.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq.errors import NotStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})
NO_THREAD: Final = "can't start new thread"  # Python's words; a resolver or a driver may have needed it


def start_thread(name: str, run: Callable[[], object]) -> None:
    """Start a daemon thread; NotStarted if the process cannot have another one."""
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except Exception as error:  # also of users' code that breaks threads, such as sys.excepthook = None
        raise NotStarted(f"cannot start a thread: {error}") from error


def check_lack(error: BaseException) -> None:
    """Raise NotStarted if what prepares a run failed with this error for want of a resource."""
    if lack := lack_of(error):
        raise lack from error


def lack_of(error: BaseException, *, unreachable: bool = False) -> NotStarted | None:
    """Return the lack of a resource that caused an error; None if another cause did.

    `unreachable`: a library says that a server or a file cannot be reached, as it also does without a descriptor.
    """
    found = next(filter(is_lack, causes(error)), None)
    unsaid = isinstance(found, socket.gaierror)  # a resolver and libpq do not say why they could open nothing
    if found is None and unreachable and not _descriptor_is_left():
        found, unsaid = error, True
    if found is None or isinstance(found, NotStarted):
        return found
    reason = f"{type(found).__name__}: {found}"
    return NotStarted(f"this process can open no more files ({reason})" if unsaid else reason)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and what caused it."""
    for _ in range(20):  # causes can be cyclic
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def is_lack(error: BaseException) -> bool:
    """Whether the error means that this process lacks a resource."""
    if isinstance(error, socket.gaierror):  # "temporary failure", also without a descriptor for its query
        return not _descriptor_is_left()
    if isinstance(error, OSError):
        return error.errno in LACKS
    no_thread = isinstance(error, RuntimeError) and str(error) == NO_THREAD
    return no_thread or isinstance(error, MemoryError | NotStarted)


def _descriptor_is_left() -> bool:
    with suppress(OSError):
        os.close(os.open(os.devnull, os.O_RDONLY))
        return True
    return False
