"""Signals to a server and to the processes that it started, which lead sessions of their own and are not our children.

Not here: starting one and what it prints; that is tests/processes.py.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGSTOP, Signals

from tests.processes import PATIENCE_SECONDS


def children(pid: int) -> list[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def states(pid: int) -> set[str]:
    """Of all its threads: T is stopped."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.add(thread.read_text().rpartition(")")[2].split()[0])
    return found


def signal_all(pids: list[int], number: Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def stop_all(pids: list[int]) -> None:
    """SIGSTOP, and wait until they stand still. Only a parent gets the event, so poll often."""
    signal_all(pids, SIGSTOP)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(states(pid) - {"T", "X", "Z"} for pid in pids):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still running after SIGSTOP: {pids}")
        time.sleep(0.001)


def kill_all(pids: list[int]) -> None:
    """SIGKILL, and wait until they are gone: they are not our children, so that no `wait` tells."""
    handles = []
    for pid in pids:
        with suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
            os.kill(pid, SIGKILL)
    for handle in handles:
        select.select([handle], [], [], PATIENCE_SECONDS)
        os.close(handle)
