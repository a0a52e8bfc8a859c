"""Which shards a worker looks at again, and when."""

from __future__ import annotations

import pytest
from delayq.protocol.results import Claimed
from delayq.worker.claim_backoff import REFUSED_SECONDS, ClaimBackoff


def claimed(tasks: int = 0, *, held: bool = True, room_seconds: float | None = None) -> Claimed:
    return Claimed(0, tasks, held=held, room_seconds=room_seconds)


def test_who_began_the_last_tasks_of_a_rate_comes_back_for_the_next() -> None:
    held = ClaimBackoff()
    held.note(3, claimed(2, room_seconds=0.5), 10.0)
    assert (held.due(10.4), held.next_in(10.0)) == ([], 0.5)
    assert (held.due(10.5), held.due(11.0), held.next_in(11.0)) == ([3], [], float("inf"))


@pytest.mark.parametrize(
    "last",
    [claimed(2, held=False), claimed(1), claimed(0, held=False)],
    ids=["no limit", "maxInFlight", "none"],
)
def test_a_claim_that_the_rate_does_not_stop_leaves_nothing_to_come_back_for(last: Claimed) -> None:
    """At maxInFlight, the end of a task makes room."""
    held = ClaimBackoff()
    held.note(3, claimed(2, room_seconds=0.5), 10.0)
    held.note(3, last, 10.1, made_room=True)
    assert held.due(99.0) == []


def test_a_worker_that_came_in_vain_leaves_the_rate_to_others() -> None:
    """Or a hundred idle workers would all come for each single task."""
    held = ClaimBackoff()
    held.note(3, claimed(0, room_seconds=0.5), 10.0)
    assert held.due(99.0) == []
    held.note(3, claimed(2, room_seconds=0.5), 10.0)
    assert held.due(10.5) == [3]
    held.note(3, claimed(0, room_seconds=0.5), 10.5)
    assert held.due(99.0) == []


def test_a_claim_in_vain_before_the_time_does_not_forget_it() -> None:
    held = ClaimBackoff()
    held.note(3, claimed(2, room_seconds=0.5), 10.0)
    held.note(3, claimed(0, room_seconds=0.7), 10.1)
    assert (held.due(10.75), held.due(10.8)) == ([], [3])


def test_the_worker_whose_tasks_made_room_comes_back_if_the_rate_stops_it() -> None:
    held = ClaimBackoff()
    held.note(3, claimed(0, room_seconds=0.5), 10.0, made_room=True)
    assert held.due(10.5) == [3]


def test_a_shard_that_redis_refuses_is_tried_again_after_a_moment() -> None:
    held = ClaimBackoff()
    assert (held.refuse(1, 10.0), held.refuse(1, 20.0), held.refuse(2, 20.0)) == (1, 2, 1)
    assert not held.all_refused([1, 2, 3])
    assert held.all_refused([1, 2])
    assert held.due(20.0 + REFUSED_SECONDS) == [1, 2]
    held.note(1, claimed(held=False), 22.0)
    assert held.refuse(1, 30.0) == 1
