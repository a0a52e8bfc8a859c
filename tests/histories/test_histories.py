"""Every operation on a task is linearizable under all faults. `python -m tests.histories` runs for longer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.histories.plan import Plan
from tests.histories.report import Report
from tests.histories.run import play, redis
from tests.servers import PREFERRED

if TYPE_CHECKING:
    from pathlib import Path

SHORT_SECONDS, PART_SECONDS, PARTS = 15.0, 30.0, 12


def runs(directory: Path, flavour: str, seeds: range, seconds: float) -> Report:
    found = Report()
    for seed in seeds:
        own = directory / f"{seed}"
        own.mkdir()
        with redis(own, flavour) as server:
            found.add(play(Plan(seed, server.url), server, own, seconds))
    print("\n".join(found.lines()))
    return found


def clean(report: Report) -> None:
    assert report.clean, "\n".join([report.summary(), *report.violations])
    assert report.undecided <= report.histories / 20


def test_histories_under_faults_are_linearizable(tmp_path: Path) -> None:
    """13 clients, workers and keepers in five processes; kills, pauses, cut connections, a Redis that restarts."""
    report = runs(tmp_path, PREFERRED, range(1, 2), SHORT_SECONDS)
    clean(report)
    assert {verb for verb, _ in report.operations} >= {"schedule", "claim", "ack", "reclaim", "get"}


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("server", ["7.0", "valkey9"])
def test_long_histories_under_faults_are_linearizable(tmp_path: Path, server: str) -> None:
    """Six minutes for each server, with other seeds every day of a process ID."""
    first = os.getpid() * PARTS
    clean(runs(tmp_path, server, range(first, first + PARTS), PART_SECONDS))
