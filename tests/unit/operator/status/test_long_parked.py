"""Since when tasks have been parked, over time and over a restart of the operator."""

from __future__ import annotations

from dataclasses import replace

from delayq_operator.status.long_parked import PARKED_SECONDS, LongParked

from tests.unit.operator.views import HEALTHY, NOW, resource, view

PARKED = view(backlog=replace(HEALTHY, parked=3))
UNREAD = view(backlog=None)


def test_tasks_are_long_parked_after_two_minutes_and_unread_scanners_change_nothing() -> None:
    queues = LongParked()
    assert queues.wait_seconds(PARKED, NOW) == PARKED_SECONDS
    assert queues.wait_seconds(UNREAD, NOW + 30) is None
    assert queues.wait_seconds(PARKED, NOW + 100) == PARKED_SECONDS - 100
    assert queues.wait_seconds(PARKED, NOW + PARKED_SECONDS) == 0
    assert queues.wait_seconds(view(), NOW + 200) is None
    assert queues.wait_seconds(PARKED, NOW + 300) == PARKED_SECONDS  # a later rollout


def test_a_restarted_operator_does_not_count_again() -> None:
    told = {"type": "Degraded", "status": "True", "reason": "TasksParked"}
    before = replace(PARKED, resource=resource(status={"conditions": [told]}))
    assert LongParked().wait_seconds(before, NOW) == 0
