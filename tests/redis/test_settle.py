"""ack, retry, bury, release and extend where test_machine.py does not get: batches, hints, and lower limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.results import Extended, Settled

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
    "end_cancelled": lambda c, members: c.end_cancelled(0, [member.encode() for member in members]),
    "extend": lambda c, members: c.extend(0, [member.encode() for member in members], LEASE_MS),
}


def _flat(members: list[str], *rest: str | int) -> list[str | int]:
    return [item for member in members for item in (member, *rest)]


def settle(shard: Shard, verb: str, *members: str) -> list[Settled] | Extended:
    found: list[Settled] | Extended = shard.run(VERBS[verb](shard.commands, list(members)))
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_each_lease_of_a_batch_has_its_own_outcome(shard: Shard, verb: str) -> None:
    """Fenced: the result of a lease that is gone changes nothing."""
    before = shard.seed(State(processing={"a:7": NOW, "ü*:7:9": NOW, "c:1": NOW + 9}))
    outcomes = settle(shard, verb, "a:7", "b:8", "ü*:7:9")
    after = shard.whole()
    if isinstance(outcomes, Extended):
        assert outcomes == ({1}, set())
        assert after == before.but(
            processing={"c:1": NOW + 9, **dict.fromkeys(("a:7", "ü*:7:9"), NOW + LEASE_MS)}
        )
        return
    assert [outcome is Settled.LEASE_LOST for outcome in outcomes] == [False, True, False]
    assert after.processing == {"c:1": NOW + 9}
    assert sum(after.stats.values()) == 2


def test_a_task_that_its_handler_puts_back_is_never_buried(shard: Shard) -> None:
    """Also when maxAttempts was lowered below its failures."""
    shard.seed(State(processing={"a:7": NOW}, attempts={"a": "5 0 old"}))
    assert settle(shard, "put back", "a:7") == [Settled.RETRIED]
    assert shard.whole().attempts == {"a": f"5 0 @{NOW + 5} later"}


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
    """A task that is due wakes a worker; one that is due before all others wakes the scanner."""
    shard.seed(State(processing={"a:7": NOW}, retry={} if waiting is None else {"w": waiting}))
    options = {"max_attempts": 3} if verb == "retry" else {}
    shard.run(getattr(shard.commands, verb)(0, ["a:7", *rest], **options))
    after = shard.whole()
    assert (after.wake, after.alarm) == (wake, alarm)


@pytest.mark.parametrize("expiry", [NOW - 5, NOW + 5, NOW + 3_600_000])
def test_a_held_lease_lasts_its_length_from_now(shard: Shard, expiry: int) -> None:
    """Expired and not yet reclaimed, too long since the clock stepped back, and with all memory in use."""
    before = shard.seed(State(processing={"a:7": expiry, "c:9": NOW + 7}))
    with shard.full_memory():
        assert settle(shard, "extend", "a:7") == (set(), set())
    assert shard.whole() == before.but(processing={"a:7": NOW + LEASE_MS, "c:9": NOW + 7})
