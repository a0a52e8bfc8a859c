"""Histories show defects: each of these is found within seconds, and without a defect nothing is."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.histories.mutants import MUTANTS, ROLES, Mutant, mutated
from tests.histories.plan import Plan
from tests.histories.run import play_alone, redis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _pytest.mark.structures import ParameterSet

    from tests.histories.report import Report
    from tests.servers import RedisServer

TRIES = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis(tmp_path_factory.mktemp("mutants"), appendonly=False) as server:
        yield server


def once(server: RedisServer, directory: Path, mutant: Mutant | None, seed: int) -> Report:
    """A short run on an empty server."""
    server.reset()
    plan = Plan(seed, server.url, tasks=4, pause_seconds=0.005, lease_ms=(100, 300))
    if mutant:
        plan = replace(plan, **mutant.bias)
    directory.mkdir()
    with mutated(mutant, directory) if mutant else nullcontext():
        return play_alone(plan, server, directory, ROLES)


def cases() -> Iterator[ParameterSet]:
    """`make test` runs the first of each script; the others are `full`."""
    seen = set[str]()
    for mutant in MUTANTS:
        marks = [pytest.mark.full] if mutant.file in seen else []
        seen.add(mutant.file)
        yield pytest.param(mutant, marks=marks, id=mutant.name)


def test_each_defect_has_its_place(tmp_path: Path) -> None:
    for number, mutant in enumerate(MUTANTS):
        (directory := tmp_path / f"{number}").mkdir()
        with mutated(mutant, directory):
            pass


@pytest.mark.parametrize("mutant", list(cases()))
def test_a_defect_of_a_script_is_found(server: RedisServer, mutant: Mutant, tmp_path: Path) -> None:
    found = (once(server, tmp_path / f"{seed}", mutant, seed) for seed in range(TRIES))
    assert any(not report.clean for report in found)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))])
def test_without_a_defect_none_is_found(server: RedisServer, seed: int, tmp_path: Path) -> None:
    report = once(server, tmp_path / "run", None, seed)
    assert report.clean, "\n".join(report.violations)
    assert report.undecided == 0
