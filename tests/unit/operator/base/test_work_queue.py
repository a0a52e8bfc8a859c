"""A key is never processed twice at a time and never lost, with any order of marks."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from delayq_operator.base import work_queue as module
from delayq_operator.base.names import Key
from delayq_operator.base.work_queue import LATER_SECONDS, SOON_SECONDS, WorkQueue, backoff_seconds
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.fakes import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import pytest

KEYS = [Key("shop", name) for name in "abc"]
A, B, *_ = KEYS


async def settle(turns: int = 50) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def at_once() -> None:
    """WorkQueue is always allowed."""


class Runs(list[Key]):
    """Notes which keys were worked on, each until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()

    async def handle(self, key: Key) -> float | None:
        self.append(key)
        await self.go.wait()
        return None


@asynccontextmanager
async def running(
    work: WorkQueue,
    handle: Callable[[Key], Awaitable[float | None]],
    workers: int = 2,
    allowed: Callable[[], Awaitable[object]] = at_once,
) -> AsyncIterator[None]:
    """Workers on a WorkQueue, stopped at the end."""
    tasks = [asyncio.create_task(work.run(handle, allowed=allowed)) for _ in range(workers)]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


step = st.one_of(
    st.tuples(st.just("mark"), st.sampled_from(KEYS)),
    st.tuples(st.just("mark soon"), st.sampled_from(KEYS)),
    st.tuples(st.just("wait"), st.integers(1, 5)),
)


@given(
    steps=st.lists(step, max_size=30),
    durations=st.lists(st.integers(0, 6), min_size=1, max_size=10),
    failures=st.lists(st.booleans(), max_size=10),
    workers=st.integers(1, 4),
)
def test_what_was_marked_is_seen_and_by_one_worker_at_a_time(
    steps: list[tuple[str, Key | int]], durations: list[int], failures: list[bool], workers: int
) -> None:
    """The world changes with each mark; in the end, work has begun after the last change of each key."""
    now: Counter[Key] = Counter()
    seen: Counter[Key] = Counter()
    in_hand: set[Key] = set()
    runs: list[Key] = []

    async def handle(key: Key) -> float | None:
        assert key not in in_hand
        in_hand.add(key)
        seen[key] = now[key]
        runs.append(key)
        for _ in range(durations[len(runs) % len(durations)]):
            await asyncio.sleep(0)
        in_hand.discard(key)
        return 3.0 if failures and failures.pop() else None

    async def play() -> None:
        work = WorkQueue()
        async with running(work, handle, workers):
            for what, argument in steps:
                if isinstance(argument, int):
                    await settle(argument)
                    continue
                now[argument] += 1
                if what == "mark":
                    work.enqueue(argument)
                else:
                    work.enqueue_in(argument, 0)
            await settle(200)

    failures_possible = len(failures)
    with patch.object(module, "FIRST_BACKOFF_SECONDS", 0.0):
        asyncio.run(play())
    assert seen == now
    assert len(runs) <= sum(now.values()) + failures_possible


async def test_many_marks_are_one_run_and_those_during_the_work_one_more() -> None:
    runs, work = Runs(), WorkQueue()
    runs.go.clear()
    async with running(work, runs.handle):
        for _ in range(2):
            for key in (A, A, A, B):
                work.enqueue(key)
            await settle()
            assert runs == [A, B]
        runs.go.set()
        await settle()
        assert runs == [A, B, A, B]


async def test_the_earliest_of_several_timers_counts() -> None:
    runs, work = Runs(), WorkQueue()
    async with running(work, runs.handle), asyncio.timeout(5):
        for seconds in (60, 0.01, 30):
            work.enqueue_in(A, seconds)
        while not runs:  # noqa: ASYNC110 -- a timer's turn
            await asyncio.sleep(0.005)


async def test_failures_back_off_until_one_succeeds_and_a_change_is_looked_at_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(WorkQueue, "enqueue_in", lambda _self, _key, seconds: pauses.append(seconds))
    work, results = WorkQueue(), [LATER_SECONDS, None, *[LATER_SECONDS] * 10]

    async def handle(key: Key) -> float | None:
        if len(results) == 1:
            work.enqueue(key)  # an edit, during the last try
        return results.pop(0)

    async with running(work, handle, workers=1):
        for _ in range(12):
            work.enqueue(A)
            await settle()
    bounds = [0.2, *(0.2 * 2**n for n in range(9)), SOON_SECONDS]
    assert [bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True)] == [True] * 11


async def test_how_long_the_oldest_work_has_gone_on_counts_from_when_it_was_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A standby, or a leader whose Lease is in doubt, waits with a key in hand: nothing hangs there."""
    clock, lead, go = Clock(), asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(module, "time", clock)

    async def handle(_key: Key) -> float | None:
        await go.wait()
        return None

    work = WorkQueue()
    seen = []
    work.enqueue(A)
    async with running(work, handle, workers=2, allowed=lead.wait):
        steps: tuple[Callable[[], None], ...] = (lambda: None, lead.set, lambda: work.enqueue(B), go.set)
        for step in steps:
            step()
            await settle()
            clock.now += 100
            seen.append(work.longest_seconds)
    assert seen == [0, 100, 200, 0]


def test_a_backoff_after_any_number_of_failures_is_the_longest() -> None:
    assert backoff_seconds(100_000, LATER_SECONDS, chance=0.5) == LATER_SECONDS * 0.75


async def test_namespaces_take_turns() -> None:
    """A tenant with many queues in line, and first, delays its own."""
    runs, work = Runs(), WorkQueue()
    crowd, bank = [Key("crowd", str(each)) for each in range(50)], Key("bank", "x")
    for key in (*crowd, A, B, bank):
        work.enqueue(key)
    async with running(work, runs.handle, workers=1):
        await settle(300)
    assert runs[:5] == [crowd[0], A, bank, crowd[1], B]
    assert sorted(runs) == sorted((*crowd, A, B, bank))


async def test_a_namespace_whose_queues_hang_leaves_a_worker_to_others() -> None:
    runs, work = Runs(), WorkQueue()

    async def handle(key: Key) -> float | None:
        runs.append(key)
        return await asyncio.Event().wait() if key.namespace == "stuck" else None

    for each in range(10):
        work.enqueue(Key("stuck", str(each)))
    async with running(work, handle, workers=4):
        await settle()
        assert len(runs) == 3
        for key in KEYS:
            work.enqueue(key)
        await settle()
        assert runs[3:] == KEYS


async def test_work_that_never_waits_lets_the_loop_do_other_things() -> None:
    """The Lease is renewed while a hundred keys are computed one after the other."""
    runs, work, between = Runs(), WorkQueue(), set[int]()
    for each in range(100):
        work.enqueue(Key("shop", str(each)))
    async with running(work, runs.handle, workers=1):
        while len(runs) < 100:
            between.add(len(runs))
            await asyncio.sleep(0)
    assert len(between) > 50
