"""What cannot be had for a report is noted, unless nobody misses it."""

from __future__ import annotations

import pytest
from delayq.cli.exits import Wrong
from delayq.plugin.gather import Bundle


@pytest.mark.parametrize(("completed", "notes"), [(True, []), (False, ["metrics.txt: no such container"])])
def test_metrics_of_a_pod_that_has_completed_are_not_missed(*, completed: bool, notes: list[str]) -> None:
    def make() -> str:
        raise Wrong("no such container")

    found = Bundle(str)
    found.text("metrics.txt", make, moot=lambda: completed)
    assert (found.files, found.notes) == ({}, notes)
