"""A few cells of the fault ledger (`make faults` plays all): money is transferred while a worker or a server is hit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.faults.cell import play
from tests.faults.faults import FAULTS
from tests.faults.guards import GUARDS
from tests.faults.lane import Lane
from tests.faults.report import broken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.cell import Cell

TRANSFERS = 60
ONCE = [("sql-unique", "kill-after"), ("sql-pessimistic", "database-restart")]
if os.geteuid() == 0:  # only root can make a network to cut
    ONCE.append(("sql-unique", "cut-redis"))


@pytest.fixture(scope="module")
def lane(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    lane = Lane.open(tmp_path_factory.mktemp("lane"), flavour)
    yield lane
    lane.close()


def played(lane: Lane, guard: str, fault: str, directory: Path) -> Cell:
    """Under every guard, nothing is lost, nothing is early, and the accounts are what the effects say."""
    cell = play(lane, GUARDS[guard], FAULTS[fault], transfers=TRANSFERS, directory=directory)
    print(cell)
    assert broken(cell) == []
    assert cell.hit
    return cell


@pytest.mark.parametrize(("guard", "fault"), ONCE)
def test_each_transfer_takes_effect_once(lane: Lane, guard: str, fault: str, tmp_path: Path) -> None:
    assert played(lane, guard, fault, tmp_path).duplicated == 0


def test_without_a_guard_what_was_done_before_the_ack_is_repeated(lane: Lane, tmp_path: Path) -> None:
    """And the ledger shows it: a fault that hits nothing would prove nothing."""
    cell = played(lane, "none", "kill-after", tmp_path)
    assert cell.duplicated >= cell.hit
