"""schedule where test_machine.py does not get: hints, several tasks in one call, and large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.envelope import encode
from delayq.protocol.results import Outcome

from tests.redis.state import NOW, PLENTY, Shard, State, envelope

if TYPE_CHECKING:
    from delayq.protocol.replies import Stored
    from delayq.protocol.scripts import Argument

BODY = encode(None, None, None)[0]
OTHER = encode("other", None, None)[0]


def schedule(shard: Shard, *flat: Argument, if_exists: str = "reject", **options: int) -> Stored:
    everything: dict[str, Any] = {**PLENTY, "repeated": 0, **options}
    return shard.run(shard.commands.schedule(0, flat, if_exists=if_exists, **everything))


@pytest.mark.parametrize(
    ("delay_ms", "waiting", "wake", "alarm"),
    [(0, None, 1, 0), (0, 5, 1, 0), (3, None, 0, 1), (3, 5, 0, 1), (5, 5, 0, 0), (9, 5, 0, 0), (0, -5, 1, 0)],
)
def test_hints_go_out_only_when_the_next_due_time_moved(
    shard: Shard, *, delay_ms: int, waiting: int | None, wake: int, alarm: int
) -> None:
    shard.seed(State(delayed={} if waiting is None else {"w": NOW + waiting}))
    schedule(shard, "a", f"+{delay_ms}", BODY)
    after = shard.whole()
    assert (after.wake, after.alarm) == (wake, alarm)


def test_what_is_due_hides_no_earlier_next_one_and_hints_never_pile_up(shard: Shard) -> None:
    """Both hints, one of each: a worker for the task that is due, the scanner for the next."""
    shard.seed(State(delayed={"overdue": NOW - 5, "later": NOW + 60_000}))
    for delay_ms in (30, 20):
        schedule(shard, f"due {delay_ms}", "+0", BODY, f"next {delay_ms}", f"+{delay_ms}", BODY)
        after = shard.whole()
        assert (after.wake, after.alarm) == (1, 1)


@pytest.mark.parametrize(
    ("if_exists", "outcome", "due_ms", "payload"),
    [
        ("reject", Outcome.EXISTS, NOW + 5, None),
        ("keep", Outcome.KEPT, NOW + 5, None),
        ("replace", Outcome.REPLACED, NOW + 7, "other"),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_task_named_twice_in_one_call_is_as_over_two_calls(
    shard: Shard, *, if_exists: str, outcome: Outcome, due_ms: int, payload: str | None, there: bool
) -> None:
    shard.seed(State(delayed={"a": NOW + 5}) if there else State())
    notes = schedule(shard, "a", "+5", BODY, "a", "+7", OTHER, if_exists=if_exists).notes
    assert notes[1] == outcome
    after = shard.whole()
    assert after.delayed == {"a": due_ms}
    if not there:
        assert after.tasks == {"a": envelope(due_ms, payload)}


def test_a_dead_letter_is_replaced_only_where_one_more_live_task_has_room(shard: Shard) -> None:
    before = shard.seed(State(delayed={"a": NOW + 5}, dlq={"d": NOW - 9, "e": NOW - 9}))
    full = schedule(shard, "d", "+9", BODY, if_exists="replace", max_length=1)
    assert (full.notes, shard.whole()) == ({0: Outcome.FULL}, before)
    flat: list[Argument] = [
        "a",
        "+9",
        BODY,
        "d",
        "+9",
        BODY,
        "d",
        "+9",
        BODY,
        "e",
        "+9",
        BODY,
        "new",
        "+9",
        BODY,
    ]
    some = schedule(shard, *flat, if_exists="replace", max_length=2)
    assert some.notes == dict.fromkeys(range(3), Outcome.REPLACED) | dict.fromkeys((3, 4), Outcome.FULL)
    assert (shard.whole().delayed, shard.whole().dlq) == ({"a": NOW + 9, "d": NOW + 9}, {"e": NOW - 9})


def test_a_full_queue_takes_what_fits_and_refuses_the_rest(shard: Shard) -> None:
    """Tasks that wait or run take room; dead letters do not."""
    before = shard.seed(State(delayed={"w": NOW + 1}, processing={"p:7": NOW + 1}, dlq={"d": NOW, "e": NOW}))
    answer = schedule(shard, "a", "+9", BODY, "b", "+9", BODY, "w", "+9", BODY, max_length=3)
    assert answer.notes == {1: Outcome.FULL, 2: Outcome.EXISTS}
    assert shard.whole() == before.but(
        delayed={"w": NOW + 1, "a": NOW + 9},
        tasks={**before.envelopes, "a": envelope(NOW + 9)},
        stats={"scheduled": 1},
    )


def test_four_thousand_tasks_in_one_call(shard: Shard) -> None:
    """More values than unpack() can take at once."""
    flat: list[Argument] = [item for n in range(4000) for item in (f"t{n}", f"+{n}", BODY)]
    assert schedule(shard, *flat, *flat, if_exists="keep").notes == dict.fromkeys(
        range(4000, 8000), Outcome.KEPT
    )
    after = shard.whole()
    assert after.delayed == {f"t{n}": NOW + n for n in range(4000)}
    assert len(after.envelopes) == 4000


@pytest.mark.parametrize("due_ms", [NOW + 3_600_000, NOW - 3_600_000])
@pytest.mark.parametrize(("if_exists", "outcome"), [("reject", Outcome.EXISTS), ("keep", Outcome.KEPT)])
def test_a_repeated_call_recognises_an_older_task_with_the_same_payload(
    shard: Shard, due_ms: int, if_exists: str, outcome: Outcome
) -> None:
    """What a first try stored was due within the time of a few tries, not an hour away."""
    before = shard.seed(State(delayed={"a": due_ms}, tasks={"a": envelope(due_ms)}))
    assert schedule(shard, "a", "+1000", BODY, if_exists=if_exists, repeated=1).notes == {0: outcome}
    assert shard.whole() == before
