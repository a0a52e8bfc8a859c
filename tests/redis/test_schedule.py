"""schedule: tasks and their due times are stored, or refused with nothing left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.envelope import encode
from delayq.protocol.replies import Stored
from delayq.protocol.results import Outcome

from tests.redis.state import NOW, PLENTY, Shard, State, envelope

if TYPE_CHECKING:
    from delayq.protocol.scripts import Argument

BODY = encode(None, None, None)[0]
OTHER = encode("other", None, None)[0]


def schedule(shard: Shard, *flat: Argument, if_exists: str = "reject", **options: int) -> Stored:
    everything: dict[str, Any] = {**PLENTY, "repeated": 0, **options}
    return shard.run(shard.commands.schedule(0, flat, if_exists=if_exists, **everything))


def test_a_delay_and_an_instant_are_stored_as_instants(shard: Shard) -> None:
    assert schedule(shard, "a", "+500", BODY, "b", str(NOW + 400), OTHER) == Stored(NOW, 0, {})
    assert shard.whole() == State(
        delayed={"a": NOW + 500, "b": NOW + 400},
        tasks={"a": envelope(NOW + 500), "b": envelope(NOW + 400, "other")},
        alarm=1,
        stats={"scheduled": 2},
    )


def test_the_past_is_clamped_to_now_and_counted(shard: Shard) -> None:
    answer = schedule(shard, "a", str(NOW - 1), BODY, "b", "0", BODY, "c", str(NOW), BODY)
    assert answer == Stored(NOW, 2, {})
    assert shard.whole() == State(
        delayed=dict.fromkeys("abc", NOW), wake=1, stats={"scheduled": 3, "clamped": 2}
    )


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


HOMES = {
    "delayed": State(delayed={"a": NOW + 9}),
    "retry": State(retry={"a": NOW + 9}, attempts={"a": "2 1 old"}),
    "processing": State(processing={"a:7": NOW + 9}, attempts={"a": "2 1 old"}),
    "dlq": State(dlq={"a": NOW - 9}, dlq_info={"a": "2 1 buried x"}),
    "orphan": State(tasks={"a": envelope()}),
}


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize(
    ("if_exists", "body", "repeated", "outcome"),
    [
        ("reject", OTHER, 0, Outcome.EXISTS),
        ("reject", OTHER, 1, Outcome.EXISTS),
        ("keep", OTHER, 0, Outcome.KEPT),
        ("reject", BODY, 1, Outcome.REPEATED),
        ("keep", BODY, 1, Outcome.REPEATED),
    ],
)
def test_an_earlier_task_is_left_as_it_is_in_any_state(
    shard: Shard, *, home: str, if_exists: str, body: bytes, repeated: int, outcome: Outcome
) -> None:
    """A repeated call, whose reply was lost, finds what it stored, wherever that is by now; no follow-up is left."""
    before = shard.seed(HOMES[home])
    notes = schedule(shard, "a", "+1", body, if_exists=if_exists, repeated=repeated).notes
    assert notes == {0: outcome}
    assert shard.whole() == before


@pytest.mark.parametrize("home", ["delayed", "retry", "dlq"])
def test_replace_begins_anew_whatever_came_before(shard: Shard, home: str) -> None:
    """Counts and the reason of a death go with the task they belong to. A full queue has room for a replacement."""
    shard.seed(HOMES[home])
    assert schedule(shard, "a", "+1", OTHER, if_exists="replace", max_length=1).notes == {0: Outcome.REPLACED}
    assert shard.whole() == State(
        delayed={"a": NOW + 1}, tasks={"a": envelope(NOW + 1, "other")}, alarm=1, stats={"scheduled": 1}
    )


@pytest.mark.parametrize("home", ["processing", "orphan"])
def test_what_is_to_replace_a_running_task_waits_until_that_has_ended(shard: Shard, home: str) -> None:
    """An orphan counts as running until the reaper adopts it. A second follow-up replaces the first."""
    before = shard.seed(HOMES[home])
    for body, delay_ms in ((BODY, 5), (OTHER, 1)):
        done = schedule(shard, "a", f"+{delay_ms}", body, if_exists="replace")
        assert done.notes == {0: Outcome.FOLLOWS}
    assert shard.whole() == before.but(
        followups={"a": envelope(NOW + 1, "other")}, stats={"scheduled": 2, "format": 2}
    )


@pytest.mark.parametrize(("home", "outcome"), [
    ("delayed", Outcome.REPLACED), ("retry", Outcome.REPLACED), ("dlq", Outcome.REPLACED),
    ("processing", Outcome.FOLLOWS),
])  # fmt: skip
def test_a_repeated_replace_replaces_again_or_follows_the_task_that_runs(
    shard: Shard, home: str, outcome: Outcome
) -> None:
    """That may be its own: it runs twice then. It may as well be an earlier one, and nothing accepted may be lost."""
    shard.seed(HOMES[home])
    assert schedule(shard, "a", "+1", BODY, if_exists="replace", repeated=1).notes == {0: outcome}
    assert ("a" in shard.whole().delayed) is (outcome is Outcome.REPLACED)


@pytest.mark.parametrize("due_ms", [NOW + 3_600_000, NOW - 3_600_000])
@pytest.mark.parametrize(("if_exists", "outcome"), [("reject", Outcome.EXISTS), ("keep", Outcome.KEPT)])
def test_a_repeated_call_knows_an_older_task_with_the_same_payload(
    shard: Shard, due_ms: int, if_exists: str, outcome: Outcome
) -> None:
    """What a first try stored was due within the time of a few tries, not an hour away."""
    before = shard.seed(State(delayed={"a": due_ms}, tasks={"a": envelope(due_ms)}))
    assert schedule(shard, "a", "+1000", BODY, if_exists=if_exists, repeated=1).notes == {0: outcome}
    assert shard.whole() == before


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


def test_too_far_ahead_is_refused_and_leaves_nothing(shard: Shard) -> None:
    answer = schedule(
        shard, "a", "+1000", BODY, "b", "+1001", BODY, "c", str(NOW + 1001), BODY, max_delay_ms=1000
    )
    assert answer.notes == {1: Outcome.TOO_FAR, 2: Outcome.TOO_FAR}
    after = shard.whole()
    assert (set(after.delayed), set(after.envelopes)) == ({"a"}, {"a"})


def test_refused_alone_writes_nothing(shard: Shard) -> None:
    schedule(shard, "a", "+1001", BODY, max_delay_ms=1000)
    schedule(shard, "b", "+1", BODY, max_length=0)
    assert shard.whole() == State()


def test_a_full_queue_takes_what_fits_and_refuses_the_rest(shard: Shard) -> None:
    """Whatever waits or runs takes room; dead letters do not."""
    before = shard.seed(State(delayed={"w": NOW + 1}, processing={"p:7": NOW + 1}, dlq={"d": NOW, "e": NOW}))
    answer = schedule(shard, "a", "+9", BODY, "b", "+9", BODY, "w", "+9", BODY, max_length=3)
    assert answer.notes == {1: Outcome.FULL, 2: Outcome.EXISTS}
    assert shard.whole() == before.but(
        delayed={"w": NOW + 1, "a": NOW + 9},
        tasks={**before.envelopes, "a": envelope(NOW + 9)},
        stats={"scheduled": 1},
    )


@pytest.mark.parametrize("task_id", ["a:b", "7:7", "*", "[a]?", "\\", "ü-漢", "+5", "-inf", "nan", "x" * 200])
def test_any_id_is_stored_under_its_own_name(shard: Shard, task_id: str) -> None:
    schedule(shard, task_id, "+1", BODY)
    assert shard.whole().delayed == {task_id: NOW + 1}


def test_four_thousand_tasks_in_one_call(shard: Shard) -> None:
    """More values than unpack() can take at once."""
    flat: list[Argument] = [item for n in range(4000) for item in (f"t{n}", f"+{n}", BODY)]
    assert schedule(shard, *flat, *flat, if_exists="keep").notes == dict.fromkeys(
        range(4000, 8000), Outcome.KEPT
    )
    after = shard.whole()
    assert after.delayed == {f"t{n}": NOW + n for n in range(4000)}
    assert len(after.envelopes) == 4000


def test_huge_payloads_are_stored_and_claimed_whole(shard: Shard) -> None:
    payload = b"\x00\xff" * 8_000_000
    body = encode(payload, None, None)[0]
    schedule(shard, "a", "+0", body)
    assert shard.whole().tasks == {"a": body + NOW.to_bytes(6, "big")}
    assert shard.run(shard.commands.claim(0, 1, 1000)).leases[0].task.body == payload


def test_full_memory_refuses_all_and_leaves_nothing(shard: Shard) -> None:
    before = shard.seed(State(delayed={"w": NOW + 1}))
    with shard.full_memory(), pytest.raises(Exception, match="OOM"):
        schedule(shard, "a", "+1", BODY, "b", "+0", BODY)
    assert shard.whole() == before
