"""Prometheus' text format, and the standard process metrics. Not here: delayq's own metrics."""

from __future__ import annotations

import math
import os
import resource
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Sample(NamedTuple):
    """One line."""

    name: str
    labels: Mapping[str, str]
    value: float

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{value.translate(_IN_LABEL)}"' for name, value in self.labels.items())
        return (
            f"{self.name}{{{labels}}} {_number(self.value)}"
            if labels
            else f"{self.name} {_number(self.value)}"
        )


class Family(NamedTuple):
    """A metric and its samples."""

    name: str
    help: str
    kind: str
    samples: Sequence[Sample]

    def __str__(self) -> str:
        head = f"# HELP {self.name} {self.help.translate(_IN_HELP)}", f"# TYPE {self.name} {self.kind}"
        return "\n".join((*head, *map(str, self.samples), ""))


def render(families: Iterable[Family]) -> bytes:
    """Return the exposition of these families and of the process itself (CPU, memory, open files)."""
    return "".join(map(str, (*families, *_process_families()))).encode()


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _process_families() -> Iterator[Family]:
    """Yield the process metrics of Prometheus' client libraries; nothing without /proc."""
    try:
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        open_files, booted = len(os.listdir("/proc/self/fd")), _boot_seconds()  # noqa: PTH208 -- a count, no paths
    except OSError:
        return
    fields = stat.rpartition(")")[2].split()  # the third field of proc(5) and those after it
    ticks = os.sysconf("SC_CLK_TCK")
    for kind, name, text, value in (
        ("gauge", "virtual_memory_bytes", "Virtual memory size in bytes.", int(fields[20])),
        (
            "gauge",
            "resident_memory_bytes",
            "Resident memory size in bytes.",
            int(fields[21]) * resource.getpagesize(),
        ),
        (
            *("gauge", "start_time_seconds", "Start time of the process since unix epoch in seconds."),
            booted + int(fields[19]) / ticks,
        ),
        (
            *("counter", "cpu_seconds_total", "Total user and system CPU time spent in seconds."),
            (int(fields[11]) + int(fields[12])) / ticks,
        ),
        ("gauge", "open_fds", "Number of open file descriptors.", open_files),
        (
            *("gauge", "max_fds", "Maximum number of open file descriptors."),
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        ),
    ):
        yield Family(f"process_{name}", text, kind, [Sample(f"process_{name}", {}, value)])


@cache
def _boot_seconds() -> int:
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
