"""When a worker takes suspects, and when it stops claiming for them."""

from __future__ import annotations

from delayq.worker.suspects import IDLE_WORKER_SECONDS, RENEW_SECONDS, Suspects

ALL, HANDLER_SECONDS = range(4), 60.0


def known(*shards: int, at: float = 10.0) -> Suspects:
    suspects = Suspects(HANDLER_SECONDS)
    for nth, shard in enumerate(shards):
        suspects.note(shard, 1, at + nth / 10)
    return suspects


def test_an_idle_worker_takes_the_oldest_known_first() -> None:
    suspects = known(3, 1)
    assert suspects.group_of(ALL, 10.5, hinted=False) == 3
    assert suspects.group_of([1, 2], 10.5, hinted=False) == 1
    assert suspects.group_of([0, 2], 10.5, hinted=False) is None


def test_tasks_that_may_be_due_go_first() -> None:
    assert known(3).group_of(ALL, 99.0, hinted=True) is None


def test_without_suspects_there_is_nothing_to_do_ever() -> None:
    suspects = known(3)
    suspects.note(3, 0, 10.1)
    assert suspects.group_of(ALL, 99.0, hinted=False) is None
    assert (suspects.room_for(ALL, 99.0), suspects.next_in(ALL, 99.0)) == (None, float("inf"))


def test_a_busy_worker_stops_claiming_once_its_patience_is_over_and_says_so_again_and_again() -> None:
    suspects, late = known(3), 10.0 + IDLE_WORKER_SECONDS
    assert suspects.next_in(ALL, 10.0) == IDLE_WORKER_SECONDS
    assert (suspects.room_for(ALL, late - 0.1), suspects.room_for([1], late)) == (None, None)
    assert suspects.room_for(ALL, late) == 3
    assert not suspects.blocks
    suspects.reserve(3, late, granted=True)
    assert suspects.blocks
    assert suspects.room_for(ALL, late + RENEW_SECONDS / 2) is None
    assert suspects.next_in(ALL, late) == RENEW_SECONDS
    assert suspects.room_for(ALL, late + RENEW_SECONDS) == 3
    assert suspects.group_of(ALL, late, hinted=True) == 3


def test_where_another_worker_reserves_itself_or_took_them_this_one_claims_on() -> None:
    suspects = known(3)
    suspects.reserve(3, 20.0, granted=False)
    assert not suspects.blocks
    assert suspects.room_for(ALL, 20.0) is None
    assert suspects.room_for(ALL, 20.0 + IDLE_WORKER_SECONDS) == 3
    suspects.reserve(3, 30.0, granted=True)
    suspects.note(3, 0, 30.5)
    assert not suspects.blocks


def test_a_handler_that_does_not_end_leaves_suspects_to_others() -> None:
    suspects = known(3)
    suspects.reserve(3, 20.0, granted=True)
    for second in range(1, int(HANDLER_SECONDS) + 1):
        suspects.reserve(3, 20.0 + second, granted=True)
    assert suspects.room_for(ALL, 20.1 + HANDLER_SECONDS) is None
    assert not suspects.blocks


def test_after_a_group_healthy_tasks_have_their_turn() -> None:
    suspects = known(3)
    suspects.reserve(3, 20.0, granted=True)
    suspects.begin()
    assert suspects.blocks
    assert suspects.next_in(ALL, 20.0) == float("inf")
    suspects.end(30.0)
    assert not suspects.blocks
    assert suspects.room_for(ALL, 30.0) is None
    assert suspects.room_for(ALL, 30.0 + IDLE_WORKER_SECONDS) == 3


def test_a_try_in_vain_is_not_repeated_at_once() -> None:
    suspects = known(3)
    suspects.begin()
    suspects.give_up(3, 20.0, RENEW_SECONDS)
    assert not suspects.blocks
    assert suspects.group_of(ALL, 20.0, hinted=False) is None
    assert suspects.group_of(ALL, 20.0 + RENEW_SECONDS, hinted=False) == 3
