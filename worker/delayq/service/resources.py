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
    from collections.abc import Callable

LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})


def start_thread(name: str, run: Callable[[], object]) -> None:
    """Start a daemon thread; NotStarted if the process cannot have another one."""
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except Exception as error:  # also of users' code that breaks threads, such as sys.excepthook = None
        raise NotStarted(f"cannot start a thread: {error}") from error


def check_lack(error: BaseException) -> None:
    """Raise NotStarted if what prepares a run failed with this error for want of a resource."""
    if is_lack(error):
        raise NotStarted(f"{type(error).__name__}: {error}") from error


def is_lack(error: BaseException) -> bool:
    """Whether the error means that this process lacks a resource."""
    if isinstance(error, socket.gaierror):  # "temporary failure", also without a descriptor for its query
        return not _descriptor_is_left()
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in LACKS)


def _descriptor_is_left() -> bool:
    with suppress(OSError):
        os.close(os.open(os.devnull, os.O_RDONLY))
        return True
    return False
