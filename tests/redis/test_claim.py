"""claim: due tasks become leases."""

from __future__ import annotations

import pytest
from delayq.errors import EnvelopeTooNew
from delayq.protocol.envelope import encode
from delayq.protocol.results import Claimed

from tests.redis.state import NOW, PLENTY, TOKEN, Shard, State, envelope

LEASE_MS = 30_000
EXPIRY = NOW + LEASE_MS


def claim(shard: Shard, limit: int = 10) -> Claimed:
    return shard.run(shard.commands.claim(0, limit, LEASE_MS))


def ids(claimed: Claimed) -> list[str]:
    return [lease.task.id for lease in claimed.leases]


def test_what_is_due_is_leased_and_the_rest_stays(shard: Shard) -> None:
    """Due is everything up to and including this very millisecond."""
    before = shard.seed(
        State(delayed={"past": NOW - 5, "now": NOW, "later": NOW + 1}, stats={"token": TOKEN})
    )
    claimed = claim(shard)
    assert ids(claimed) == ["past", "now"]
    assert shard.whole() == before.but(
        delayed={"later": NOW + 1},
        processing={f"past:{TOKEN + 1}": EXPIRY, f"now:{TOKEN + 2}": EXPIRY},
        stats={"token": TOKEN + 2, "claimed": 2},
    )


def test_a_lease_carries_all_a_handler_is_given(shard: Shard) -> None:
    shard.seed(
        State(
            retry={"a": NOW - 1},
            tasks={"a": envelope(NOW - 9, {"n": 1}, {"trace": "7"})},
            attempts={"a": "2 1 boom"},
            stats={"token": TOKEN},
        )
    )
    [lease] = claim(shard).leases
    task = lease.task
    assert (lease.shard, lease.member, lease.failures) == (0, b"a:%d" % (TOKEN + 1), 2)
    assert (task.id, task.queue, task.attempt, task.token) == ("a", shard.commands.queue, 4, TOKEN + 1)
    assert (task.due_ms, task.scheduled_ms, task.payload, task.headers) == (
        NOW - 1,
        NOW - 9,
        {"n": 1},
        {"trace": "7"},
    )


@pytest.mark.parametrize("task_id", ["a:b:c", ":", "*", "[a]?", "\\", "ü-ñ-漢", "{x}", "-inf", "x" * 200])
def test_any_id_is_leased_under_its_own_name(shard: Shard, task_id: str) -> None:
    shard.seed(State(delayed={task_id: NOW}, stats={"token": TOKEN}))
    assert ids(claim(shard)) == [task_id]
    assert shard.whole().processing == {f"{task_id}:{TOKEN + 1}": EXPIRY}


@pytest.mark.parametrize("kept", [{"here": envelope()}, {}], ids=["beside a task", "alone"])
def test_an_index_entry_without_an_envelope_is_dropped_and_counted(
    shard: Shard, kept: dict[str, bytes]
) -> None:
    due = {"gone": NOW - 1} | dict.fromkeys(kept, NOW)
    shard.seed(State(delayed=due, retry={"lost": NOW}, tasks=kept, stats={"token": TOKEN}))
    assert ids(claim(shard)) == list(kept)
    assert shard.whole() == State(
        processing={f"{name}:{TOKEN + 2}": EXPIRY for name in kept},
        tasks=kept,
        stats={"token": TOKEN + 2 + len(kept), "claimed": len(kept), "orphans": 2},
    )


@pytest.mark.parametrize("step_ms", [0, 1, -3_600_000])
def test_tokens_rise_whatever_redis_forgets_or_its_clock_does(shard: Shard, step_ms: int) -> None:
    """A token is the time in µs, so it rises though the last one was lost; else it is the last one and one more."""
    shard.seed(State(delayed={"a": NOW}))
    first = claim(shard).leases[0].task.token
    assert NOW * 1000 <= first < (NOW + 1) * 1000
    shard.clock(NOW + step_ms)
    shard.seed(State(delayed={"a": 0}, stats={} if step_ms > 0 else {"token": first}))
    assert claim(shard).leases[0].task.token > first


def test_a_clock_that_went_back_fires_nothing_early(shard: Shard) -> None:
    before = shard.seed(State(delayed={"a": NOW}))
    shard.clock(NOW - 1)
    assert claim(shard) == Claimed(NOW - 1, [], more=False, unreadable=[])
    assert shard.whole() == before


@pytest.mark.parametrize(
    ("limit", "more", "wake"), [(1, True, 1), (2, True, 1), (3, False, 0), (4, False, 0)]
)
def test_leaving_due_tasks_behind_wakes_one_more_worker(
    shard: Shard, *, limit: int, more: bool, wake: int
) -> None:
    """Chain wake: one hint however much is left, and none when nothing is."""
    shard.seed(State(delayed={"a": NOW, "b": NOW}, retry={"c": NOW}))
    assert claim(shard, limit).more is more
    assert shard.whole().wake == wake


def test_an_unreadable_envelope_is_leased_apart_with_the_reason(shard: Shard) -> None:
    """It must neither be lost nor stop the tasks beside it."""
    shard.seed(
        State(
            delayed={"new": NOW - 1, "good": NOW},
            tasks={"new": b"\xf1future" + bytes(6), "good": envelope()},
            stats={"token": TOKEN},
        )
    )
    claimed = claim(shard)
    assert ids(claimed) == ["good"]
    [(lease, error)] = claimed.unreadable
    assert (lease.member, lease.task.body) == (b"new:%d" % (TOKEN + 1), b"\xf1future" + bytes(6))
    assert isinstance(error, EnvelopeTooNew)


def test_a_claim_takes_at_most_250(shard: Shard) -> None:
    """However many slots a worker has: that is about a millisecond of Redis' time."""
    shard.seed(State(delayed={f"d{n}": NOW for n in range(300)}, retry={f"r{n}": NOW for n in range(300)}))
    claimed = claim(shard, 100_000)
    assert (len(claimed.leases), claimed.more) == (250, True)
    after = shard.whole()
    assert (len(after.delayed), len(after.retry), len(after.processing)) == (50, 300, 250)


@pytest.mark.parametrize("due", [{}, {"a": NOW}])
def test_the_claim_that_ends_a_backlog_takes_the_stale_hint_and_tells_the_scanner(
    shard: Shard, due: dict[str, int]
) -> None:
    """A hint that lies there says that every worker is busy; after this claim it would be a lie."""
    shard.seed(State(delayed=due, wake=1))
    claim(shard)
    after = shard.whole()
    assert (after.wake, after.alarm) == (0, 1)


def scheduled(shard: Shard, sizes: list[int]) -> None:
    """Through schedule, which notes how large the largest is."""
    for nth, size in enumerate(sizes):
        body = encode(b"x" * size, None, None)[0]
        call = shard.commands.schedule(
            0, [f"t-{nth:03}", str(NOW - len(sizes) + nth), body], if_exists="reject", repeated=0, **PLENTY
        )
        shard.run(call)


@pytest.mark.parametrize(
    ("sizes", "claims"), [([256 * 1024] * 9, [3, 3, 3]), ([10, 2 << 20, 10], [1, 1, 1])], ids=["many", "huge"]
)
def test_a_claim_brings_about_a_mebibyte_and_leaves_the_rest_to_the_next(
    shard: Shard, sizes: list[int], claims: list[int]
) -> None:
    """250 tasks of 256 KiB would hold Redis for a second, and their leases expire on the way."""
    scheduled(shard, sizes)
    found = [claim(shard, 250) for _ in claims]
    assert [len(each.leases) for each in found] == claims
    assert [name for each in found for name in ids(each)] == [f"t-{nth:03}" for nth in range(len(sizes))]
    assert [each.more for each in found] == [True, True, False]
