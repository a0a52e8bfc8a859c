"""docs/explanation/guarantees.md has every measured way to lose tasks, between marks that the command finds."""

from __future__ import annotations

from benchmarks.loss import FIRST, LAST, PAGE
from benchmarks.loss_cases import CASES, HEAD


def test_the_page_has_a_row_for_each_case() -> None:
    section = PAGE.read_text().split(FIRST)[1].split(LAST)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert rows[:2] == HEAD.splitlines()
    named = [tuple(cell.strip() for cell in row.split("|")[1:3]) for row in rows[2:]]
    assert named == [(case.name, case.event) for case in CASES.values()]
