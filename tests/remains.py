"""What a test run leaves on the machine: processes, mounts, network interfaces. A run that leaves any has failed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK: Final = "DELAYQ_TEST_RUN"
"""Environment variable of every process of a run: the ids of the run and of those that it is a part of."""
PATIENCE_SECONDS: Final = 30.0
"""For processes that were sent a signal and have not ended yet."""


class Remains:
    """A pytest plugin of the process that the user started; workers of xdist are gone when it looks."""

    def __init__(self, config: pytest.Config) -> None:
        """Mark every process that starts from here on."""
        self._config, self.mark = config, uuid4().hex
        os.environ[MARK] = f"{os.environ.get(MARK, '')} {self.mark}".strip()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Wait until nothing is left; name what is left after all."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.found()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print("\nThe test run left something on this machine:", *found, sep="\n  ")

    def found(self) -> list[str]:
        """One line for each process, mount and network interface."""
        folder = self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # not public
        return [
            *(f"process {pid}: {line}" for pid, line in processes(self.mark)),
            *(f"mount {point}" for point in mounts(folder)),
            *(f"network interface {name}" for name in interfaces(self.mark)),
        ]


def processes(mark: str) -> Iterator[tuple[int, str]]:
    """Number and command line of each process with this mark; the kernel shows no environment of a zombie."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or belongs to another user
            if mark.encode() in (folder / "environ").read_bytes():
                yield (
                    int(folder.name),
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"),
                )


def mounts(folder: Path) -> Iterator[str]:
    """Mount points below a folder."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4]
        if Path(point).is_relative_to(folder):
            yield point


def alias() -> tuple[str, str]:
    """Options of `ip link set` that mark a network interface as one of this run: others run beside it."""
    return "alias", os.environ.get(MARK, "tests")


def interfaces(mark: str) -> Iterator[str]:
    """Network interfaces of this machine with this mark."""
    for file in Path("/sys/class/net").glob("*/ifalias"):
        with suppress(OSError):  # it has just gone
            if mark in file.read_text():
                yield file.parent.name
