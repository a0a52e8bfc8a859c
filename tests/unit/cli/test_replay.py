"""delayq replay: the record of a decision gives the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.scaling import Policy, Sample, begun, decide, recorded, sentence

from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from pathlib import Path


def test_an_events_annotation_gives_the_events_sentence_again(tmp_path: Path) -> None:
    policy = Policy(slots=4, max_replicas=7)
    decision = decide(Sample(overdue=100, handler_seconds=2.0), policy, begun(1, 1e9), 1e9 + 2)
    path = tmp_path / "decision.json"
    path.write_text(recorded(decision))
    for args, stdin in ((str(path), ""), ("-", recorded(decision))):
        result = run("replay", args, stdin=stdin)
        assert (result.exit_code, result.stdout) == (0, f"{sentence(decision)}\n")


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_decision_is_refused(text: bytes) -> None:
    result = run("replay", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "delayq.dev/decision" in result.stderr
