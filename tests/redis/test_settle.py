"""ack, retry, bury, release and extend: what each does to a task, and that only the holder of its lease can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.results import Settled

from tests.redis.state import NOW, Shard, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.protocol.commands import Call, Commands

LEASE_MS = 30_000
VERBS: dict[str, Callable[[Commands, list[str]], Call[Any]]] = {
    "ack": lambda c, members: c.ack(0, [member.encode() for member in members]),
    "retry": lambda c, members: c.retry(0, _flat(members, 60_000, 1, "boom"), max_attempts=3),
    "put back": lambda c, members: c.retry(0, _flat(members, 5, 0, "later"), max_attempts=3),
    "bury": lambda c, members: c.bury(0, _flat(members, "boom")),
    "release": lambda c, members: c.release(0, _flat(members, NOW - 50)),
    "extend": lambda c, members: c.extend(0, [member.encode() for member in members], LEASE_MS),
}
RETRIED = {"retry": {"a": NOW + 60_000}, "alarm": 1, "stats": {"retried": 1}}
PUT_BACK = {"retry": {"a": NOW + 5}, "alarm": 1, "stats": {"retried": 1}}
BURIED = {"dlq": {"a": NOW}, "attempts": {}, "stats": {"buried": 1}}
RELEASED = {"wake": 1, "stats": {"released": 1}}


def _flat(members: list[str], *rest: str | int) -> list[str | int]:
    return [item for member in members for item in (member, *rest)]


def settle(shard: Shard, verb: str, *members: str) -> list[Settled] | set[int]:
    found: list[Settled] | set[int] = shard.run(VERBS[verb](shard.commands, list(members)))
    return found


@pytest.mark.parametrize(
    ("verb", "entry", "changes"),
    [
        ("retry", "", RETRIED | {"attempts": {"a": f"1 0 @{NOW + 60_000} boom"}}),
        ("retry", "1 9 old", RETRIED | {"attempts": {"a": f"2 9 @{NOW + 60_000} boom"}}),
        ("retry", "2 4 old", BURIED | {"dlq_info": {"a": "3 4 attempts boom"}}),
        ("put back", "2 1 old", PUT_BACK | {"attempts": {"a": f"2 1 @{NOW + 5} later"}}),
        ("put back", "5 0 old", PUT_BACK | {"attempts": {"a": f"5 0 @{NOW + 5} later"}}),
        ("bury", "", BURIED | {"dlq_info": {"a": "1 0 buried boom"}}),
        ("bury", "1 2 old", BURIED | {"dlq_info": {"a": "2 2 buried boom"}}),
        ("release", "", RELEASED | {"delayed": {"a": NOW - 50}}),
        ("release", "1 0 boom", RELEASED | {"retry": {"a": NOW - 50}}),
        ("release", "0 1 ", RELEASED | {"retry": {"a": NOW - 50}}),
    ],
)
def test_what_a_settlement_does_to_its_task(
    shard: Shard, verb: str, entry: str, changes: dict[str, Any]
) -> None:
    """Crashes are no attempts, and what is put back without charge is never buried; the lease may have expired."""
    before = shard.seed(
        State(processing={"a:7": NOW - 9, "b:8": NOW}, attempts={"a": entry} if entry else {})
    )
    settle(shard, verb, "a:7")
    assert shard.whole() == before.but(processing={"b:8": NOW}, **changes)


def test_an_acked_task_is_gone_whole(shard: Shard) -> None:
    """Lease, envelope and counts; what is beside it stays."""
    before = shard.seed(
        State(processing={"a:7": NOW, "b:8": NOW}, attempts={"a": "1 0 x", "b": "2 0 y"}, stats={"acked": 4})
    )
    settle(shard, "ack", "a:7")
    assert shard.whole() == before.without(
        "a", processing={"b:8": NOW}, attempts={"b": "2 0 y"}, stats={"acked": 5}
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_stale_token_changes_nothing(shard: Shard, verb: str) -> None:
    """Fenced: the task is leased anew, waits, failed, died or is gone, so this result does not count."""
    before = shard.seed(
        State(processing={"a:8": NOW}, retry={"b": NOW}, delayed={"c": NOW}, suspect={"d": 7}, dlq={"e": NOW})
    )
    lost = settle(shard, verb, "a:7", "b:7", "c:7", "d:7", "e:7", "gone:7")
    assert lost == ({0, 1, 2, 3, 4, 5} if verb == "extend" else [Settled.LEASE_LOST] * 6)
    assert shard.whole() == before


@pytest.mark.parametrize("verb", VERBS)
def test_each_lease_of_a_batch_has_its_own_outcome(shard: Shard, verb: str) -> None:
    """Ids may hold colons and globs."""
    before = shard.seed(State(processing={"a:7": NOW, "ü*:7:9": NOW, "c:1": NOW + 9}))
    outcomes = settle(shard, verb, "a:7", "b:8", "ü*:7:9")
    after = shard.whole()
    if isinstance(outcomes, set):
        assert outcomes == {1}
        assert after == before.but(
            processing={"c:1": NOW + 9, **dict.fromkeys(("a:7", "ü*:7:9"), NOW + LEASE_MS)}
        )
        return
    assert [outcome is Settled.LEASE_LOST for outcome in outcomes] == [False, True, False]
    assert after.processing == {"c:1": NOW + 9}
    assert sum(after.stats.values()) == 2


def test_ten_thousand_leases_in_one_call(shard: Shard) -> None:
    """More than unpack() can take at once."""
    members = [f"t{n}:{n}" for n in range(10_000)]
    shard.seed(State(processing=dict.fromkeys(members, NOW)))
    assert settle(shard, "ack", *members) == [Settled.ACKED] * 10_000
    assert shard.whole() == State(stats={"acked": 10_000})


@pytest.mark.parametrize(
    ("verb", "rest", "waiting", "wake", "alarm"),
    [
        ("retry", [0, 1, ""], NOW + 9, 1, 0),
        ("retry", [5, 1, ""], NOW + 9, 0, 1),
        ("retry", [9, 1, ""], NOW + 9, 0, 0),
        ("retry", [20, 1, ""], NOW + 9, 0, 0),
        ("retry", [20, 1, ""], None, 0, 1),
        ("release", [NOW + 5], NOW + 9, 0, 1),  # the clock stepped back since the task was claimed
    ],
)
def test_hints_go_out_only_when_the_next_due_time_moved(
    shard: Shard, *, verb: str, rest: list[str | int], waiting: int | None, wake: int, alarm: int
) -> None:
    """Due now wakes a worker; earlier than all others sets the alarm; anything else is no news."""
    shard.seed(State(processing={"a:7": NOW}, retry={} if waiting is None else {"w": waiting}))
    options = {"max_attempts": 3} if verb == "retry" else {}
    shard.run(getattr(shard.commands, verb)(0, ["a:7", *rest], **options))
    after = shard.whole()
    assert (after.wake, after.alarm) == (wake, alarm)


@pytest.mark.parametrize("reason", ["", "two\nlines", "  spaces  ", "ü漢", "1 2 3", "%d %s", "x" * 100_000])
def test_any_reason_is_kept_and_read_back(shard: Shard, reason: str) -> None:
    """It is the last field of an entry, so nothing in it can be mistaken for another."""
    shard.seed(State(processing={"a:7": NOW}))
    shard.run(shard.commands.retry(0, ["a:7", 0, 1, reason], max_attempts=2))
    failed = shard.view("a").failed
    assert (failed.failures, failed.crashes, failed.error) == (1, 0, reason)
    [lease] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    assert lease.task.attempt == 2
    shard.run(shard.commands.retry(0, [lease.member, 0, 1, reason], max_attempts=2))
    failed = shard.view("a").failed
    assert (failed.reason, failed.error) == ("attempts", reason)


def test_a_claim_after_a_release_is_the_same_attempt(shard: Shard) -> None:
    shard.seed(State(retry={"a": NOW}, attempts={"a": "1 0 boom"}))
    [lease] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    shard.run(shard.commands.release(0, [lease.member, lease.task.due_ms]))
    [again] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    assert (again.task.attempt, again.task.due_ms) == (lease.task.attempt, lease.task.due_ms)
    assert again.task.token > lease.task.token


@pytest.mark.parametrize("expiry", [NOW - 5, NOW + 5, NOW + 3_600_000])
def test_a_held_lease_lasts_its_length_from_now(shard: Shard, expiry: int) -> None:
    """Expired and not yet reclaimed, too long since the clock stepped back, and with all memory in use."""
    before = shard.seed(State(processing={"a:7": expiry, "c:9": NOW + 7}))
    with shard.full_memory():
        assert settle(shard, "extend", "a:7") == set()
    assert shard.whole() == before.but(processing={"a:7": NOW + LEASE_MS, "c:9": NOW + 7})
