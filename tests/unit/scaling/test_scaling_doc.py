"""The numbers that docs/explanation/scaling.md works out are those that the decision gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq.scaling import sentence

from tests.unit.scaling.looks import decided, policy, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq.scaling import Decision

TEXT = (Path(__file__).parents[3] / "docs" / "explanation" / "scaling.md").read_text()
ROWS = re.findall(r"^\| (.+) \| .* \| (\d+) \|$", TEXT.split("### In numbers")[1], re.MULTILINE)
MANY = policy(max_replicas=1000)


def steady() -> Decision:
    look = sample(handler_seconds=0.5, in_flight=50, ready=2)
    flow = tuple((horizon, int(100 * horizon)) for horizon, _ in look.due_within)
    return decided(sample(due_within=flow, in_flight=50, ready=2), rules=MANY)


WORKED: Mapping[str, Callable[[], Decision]] = {
    "2,000 tasks of 0.1 s due at once in 14 s": lambda: decided(
        sample((14.0, 2000), handler_seconds=0.1), rules=MANY
    ),
    "2,000 tasks of 0.5 s due at once in 14 s": lambda: decided(sample((14.0, 2000)), rules=MANY),
    "2,000 tasks of 30 s due at once in 14 s": lambda: decided(
        sample((14.0, 2000), handler_seconds=30.0), rules=MANY
    ),
    "the same in 16 s, or next month": lambda: decided(
        sample((16.0, 2000), handler_seconds=30.0), rules=MANY
    ),
    "100 tasks a second of 0.5 s, steadily": steady,
    "40 tasks of ten minutes in flight, nothing else": lambda: decided(
        sample(in_flight=40, handler_seconds=600.0, ready=2), rules=MANY
    ),
    "one task overdue": lambda: decided(sample(overdue=1), rules=MANY),
}


def test_every_row_is_worked_out_here() -> None:
    assert [case for case, _ in ROWS] == list(WORKED)


@pytest.mark.parametrize(("case", "workers"), ROWS)
def test_a_row_says_what_is_decided(case: str, workers: str) -> None:
    assert WORKED[case]().wanted == int(workers)


def test_the_event_shown_is_the_sentence_of_its_decision() -> None:
    assert sentence(decided(sample((12.0, 2000), handler_seconds=0.1))) in TEXT
