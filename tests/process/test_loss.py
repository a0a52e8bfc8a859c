"""What Redis had confirmed, and what is left of it after a SIGKILL, a power cut and a fail-over under load.

Only promises are asserted. The rest is printed, and `make bench-loss` writes it into docs/explanation/guarantees.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.loss_cases import CASES, Loss, measure

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 2.5  # of load: longer than everysec's second


def loss(name: str, directory: Path, flavour: str) -> Loss:
    found = measure(CASES[name], directory, flavour, seconds=SECONDS)
    print(found.row())
    assert found.confirmed >= 20
    assert found.acked >= 20
    return found


@pytest.mark.parametrize("name", ["always killed", "always cut", "fsynced cut"])
def test_a_log_that_is_synced_before_each_answer_loses_nothing(
    name: str, tmp_path: Path, flavour: str
) -> None:
    """Neither tasks nor acks: what was acked does not run again."""
    found = loss(name, tmp_path, flavour)
    assert (found.lost, found.again) == (frozenset(), frozenset())


def test_everysec_loses_at_most_two_seconds_when_redis_is_killed(tmp_path: Path, flavour: str) -> None:
    """Nothing, mostly: the kernel has what was written. A sync that is under way may put a write off, for 2 s."""
    assert loss("everysec killed", tmp_path, flavour).window_seconds <= 2


@pytest.mark.parametrize("name", ["everysec cut", "snapshot killed"])
def test_nothing_is_lost_that_was_confirmed_before_the_last_sync_or_snapshot(
    name: str, tmp_path: Path, flavour: str
) -> None:
    assert loss(name, tmp_path, flavour).too_early == frozenset()


@pytest.mark.parametrize(
    ("name", "loses"), [("no cut", True), ("failed over", True), ("replicated failed over", False)]
)
def test_only_what_was_confirmed_by_replicas_survives_them(
    name: str, tmp_path: Path, flavour: str, *, loses: bool
) -> None:
    """Of tasks. An ack is not waited for: such a task runs again. What is not confirmed may be lost, and is seen."""
    assert bool(loss(name, tmp_path, flavour).lost) is loses
