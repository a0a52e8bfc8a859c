"""What is told of a DelayQueue: how its conditions are marked."""

from __future__ import annotations

import pytest
from delayq.plugin.story import View, told


@pytest.mark.parametrize(
    ("type_", "status", "mark"),
    [
        ("Ready", "True", "✓"),
        ("Ready", "False", "!"),
        ("Ready", "Unknown", "?"),
        ("Paused", "False", "✓"),
        ("ScalingActive", "True", "✓"),
        ("ScalingActive", "False", "✓"),
        ("ScalingActive", "Unknown", "?"),
    ],
)
def test_a_condition_is_marked_by_whether_all_is_well(type_: str, status: str, mark: str) -> None:
    """ScalingActive may be either, but whether it is has to be known."""
    queue = {
        "metadata": {"namespace": "shop", "name": "orders"},
        "status": {"conditions": [{"type": type_, "status": status}]},
    }
    lines = list(told(View(queue=queue, pods=[], events=[]), 0.0))
    [row] = [line for line in lines if f"  {type_} " in line]
    assert row.startswith(f"{mark}  {type_} ")
