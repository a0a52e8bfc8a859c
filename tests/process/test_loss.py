"""What Redis had confirmed, and what is left of it after a SIGKILL, a power cut and a fail-over under load.

Only promises are asserted. The rest is printed, and `make bench-loss` writes it into docs/explanation/guarantees.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process.loss import CASES, Loss, measure

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


def test_everysec_loses_what_came_after_the_last_sync_when_the_power_fails(
    tmp_path: Path, flavour: str
) -> None:
    found = loss("everysec cut", tmp_path, flavour)
    assert found.too_early == frozenset()


def test_a_log_that_is_never_synced_may_lose_all_when_the_power_fails(tmp_path: Path, flavour: str) -> None:
    assert loss("no cut", tmp_path, flavour).lost


def test_a_log_that_is_never_synced_outlives_redis(tmp_path: Path, flavour: str) -> None:
    """No promise: it is said how much."""
    loss("no killed", tmp_path, flavour)


def test_snapshots_lose_what_came_after_them_and_nothing_before(tmp_path: Path, flavour: str) -> None:
    found = loss("snapshot killed", tmp_path, flavour)
    assert found.lost
    assert found.too_early == frozenset()


def test_a_fail_over_loses_what_the_replica_had_not_heard_of(tmp_path: Path, flavour: str) -> None:
    assert loss("failed over", tmp_path, flavour).lost


def test_what_replicas_confirmed_survives_a_fail_over(tmp_path: Path, flavour: str) -> None:
    """Of tasks. An ack is not waited for: such a task runs again."""
    assert loss("replicated failed over", tmp_path, flavour).lost == frozenset()
