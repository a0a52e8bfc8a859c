"""docs/explanation/guarantees.md shows what the last `make faults` found, and it is as promised."""

from __future__ import annotations

from itertools import product

import pytest
from delayq.contract.guard import Guard
from delayq.contract.record import camel

from tests.faults import report
from tests.faults.faults import FAULTS
from tests.faults.guards import GUARDS
from tests.faults.report import Result

AGAIN = "run `make faults`"


@pytest.fixture(scope="module")
def kept() -> Result:
    return Result.kept()


def test_the_document_shows_what_was_found_last(kept: Result) -> None:
    assert report.kept() == report.markdown(kept), AGAIN


def test_every_fault_hit_hundreds_of_transfers_under_every_guard_and_broke_no_promise(kept: Result) -> None:
    assert [(cell.guard, cell.fault) for cell in kept.cells] == [*product(GUARDS, FAULTS)], AGAIN
    assert {(cell.expected >= 200, cell.hit >= 5) for cell in kept.cells} == {(True, True)}
    assert kept.broken() == [], "lost, early, or doubled in spite of a guard's own transaction"
    duplicated = {cell.fault: cell.duplicated >= cell.hit for cell in kept.of("none")}
    assert duplicated["kill-after"], "a fault that hits nothing would prove nothing"


def test_each_guard_of_a_document_is_in_the_table() -> None:
    assert {name for kind in GUARDS.values() for name in kind.spec} == {
        camel(name) for name in Guard.SHAPE.one_of
    }
