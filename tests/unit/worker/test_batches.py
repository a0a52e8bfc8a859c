"""From the end of a call of several tasks to their settlements: each task has one, and only its own fault counts."""

from __future__ import annotations

import asyncio
import functools
import time
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from delayq import App, Bury, Retry, Seen
from delayq.handlers.app import AppHandler
from delayq.protocol.results import Lease
from delayq.worker.batches import size_of
from delayq.worker.executor import NEVER_LAST
from delayq.worker.lease_renewal import CLEANUP_SECONDS

from tests.unit.handlers.support import a_task, document
from tests.unit.worker.support import Worker, lacking

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delayq.worker.settlements import Settlement
    from delayq.worker.slots import Running

QUEUE = document(
    {"python": {"app": "shop:app"}},
    worker={"concurrency": 50},
    delivery={"maxAttempts": 3, "handlerTimeoutSeconds": 60},
)


class Claims(Worker):
    """A worker of an App with one batch kind named `call`."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401
        app = App()
        app.task(name="call", batch=options.pop("batch", 50), **options)(function)
        handler = AppHandler(app, QUEUE)
        super().__init__(QUEUE, handler.call, handler.kinds, handler.batches)

    def claims(
        self, *bodies: object, failures: int = 0, ids: Sequence[str] = (), isolated: bool = False
    ) -> list[Running]:
        """Let one claim return tasks 0, 1, …, with these payloads."""
        first = len(self.slots.running)
        leases = []
        for nth, body in enumerate(bodies):
            task = a_task(str(body).encode(), task_id=ids[nth] if ids else str(first + nth))
            named = replace(task, kind="call", kind_version=1)
            leases.append(Lease(named, 0, b"%d:41" % (first + nth), failures))
        return self.claimed(*leases, isolated=isolated)

    async def by_id(self) -> dict[str, Settlement]:
        waiting = await self.settled()
        assert len({each.lease.member for each in waiting}) == len(waiting), "one settlement each"
        return {each.lease.task.id: each for each in waiting}

    async def verbs(self) -> dict[str, str]:
        return {task_id: settlement.verb for task_id, settlement in (await self.by_id()).items()}


def test_each_failure_makes_calls_smaller_and_the_last_attempt_is_one_alone() -> None:
    assert [size_of(500, failures, 8) for failures in range(5)] == [500, 62, 7, 1, 1]
    assert [size_of(500, failures, 3) for failures in range(4)] == [500, 62, 1, 1]
    assert [size_of(500, failures, 1) for failures in range(3)] == [500, 1, 1]
    assert size_of(10_000, 10_000, 10_000) == 1


@pytest.mark.parametrize("place", ["delayq.worker.slots.GroupState.begin", "delayq.worker.batches.Running"])
async def test_a_task_that_could_not_join_a_call_for_want_of_memory_joins_one_at_the_next_try(
    place: str,
) -> None:
    ran = []

    async def call(numbers: list[int]) -> None:
        ran.extend(numbers)

    claims = Claims(call)
    with patch(place, lacking(resolve_name(place), 20)), pytest.raises(MemoryError):
        claims.claims(*range(50))
    claims.start()
    assert set((await claims.verbs()).values()) == {"ack"}
    assert sorted(ran) == [*range(50)]


async def test_a_coroutine_function_behind_a_plain_decorator_runs_on_the_loop() -> None:
    loops = []

    async def call(numbers: list[int]) -> list[Exception | None]:
        loops.append(asyncio.get_running_loop())
        return [KeyError("x") if number else None for number in numbers]

    @functools.wraps(call)
    def decorated(numbers: list[int]) -> Any:  # noqa: ANN401  any decorator's
        return call(numbers)

    claims = Claims(decorated)
    claims.claims(0, 1)
    assert await claims.verbs() == {"0": "ack", "1": "retry"}
    assert loops == [asyncio.get_running_loop()]


async def test_what_is_claimed_together_is_one_call_with_an_outcome_for_each() -> None:
    calls = []

    async def call(numbers: list[int]) -> list[Exception | None]:
        calls.append(numbers)
        outcomes = [None, Retry("later", delay_ms=5), Bury("never"), Seen(), KeyError("x")]
        return [outcomes[number] for number in numbers]

    claims = Claims(call)
    claims.claims(0, 1)
    claims.claims(2, '"text"', 3, 4)  # the answer of another shard in the same exchange
    settled = await claims.by_id()
    assert calls == [[0, 1, 2, 3, 4]]
    assert [settled[str(nth)].verb for nth in range(6)] == ["ack", "retry", "bury", "retry", "ack", "retry"]
    assert settled["1"].arguments == (5, 1, "later")
    assert settled["3"].arguments[:2] == (30_000, 0)  # uncharged: the arguments may fit another worker
    assert "valid integer" in str(settled["3"].arguments[2])
    assert (settled["1"].max_attempts, settled["5"].max_attempts) == (3, 3)
    assert (sum(claims.counters.handler.counts), sum(claims.counters.claimed_to_started.counts)) == (4, 6)


async def test_no_call_is_larger_than_batch_or_mixes_tasks_that_failed() -> None:
    calls = []

    def call(numbers: list[int]) -> None:
        calls.append(numbers)

    claims = Claims(call, batch=4)
    claims.claims(*range(6))
    claims.claims(6, 7, failures=1)
    assert set((await claims.verbs()).values()) == {"ack"}
    assert sorted(calls) == [[0, 1, 2, 3], [4, 5], [6], [7]]


@pytest.mark.parametrize("error", [ValueError("x"), Bury("never"), Seen(), SystemExit(1), Retry("away")])
async def test_an_error_that_is_raised_is_final_for_a_task_alone_only(error: BaseException) -> None:
    async def call(_numbers: list[int]) -> None:
        raise error

    claims = Claims(call, max_attempts=1)
    claims.claims(1, 2)
    settled = await claims.by_id()
    assert [(each.verb, each.max_attempts) for each in settled.values()] == [("retry", NEVER_LAST)] * 2
    alone = Claims(call, max_attempts=1)
    alone.claims(1)
    [settlement] = (await alone.by_id()).values()
    verbs = {Bury: "bury", Seen: "ack"}
    assert (settlement.verb, settlement.max_attempts) in {
        (verbs.get(type(error), "retry"), 0),
        ("retry", 1),
    }


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ([], "0 outcomes"),
        ([None, None, None], "3 outcomes"),
        ("ok", "a str for item 0"),
        ([None, "x"], "a str for item 1"),
        (7, "a int"),
        ([None, Bury], "a type for item 1"),
    ],
)
async def test_what_is_no_outcome_of_each_item_is_an_error_of_all(returned: object, found: str) -> None:
    async def call(_numbers: list[int]) -> Any:  # noqa: ANN401
        return returned

    claims = Claims(call)
    claims.claims(1, 2)
    for settlement in (await claims.by_id()).values():
        assert settlement.verb == "retry"
        assert f"for each of its 2 items None or an exception; got {found}" in str(settlement.arguments[2])


async def test_a_lost_lease_does_not_end_the_call_of_others_and_is_not_settled() -> None:
    may_end = asyncio.Event()
    ends = []

    async def call(numbers: list[int]) -> None:
        try:
            await may_end.wait()
        finally:
            ends.append(numbers)

    claims = Claims(call)
    first, second = claims.claims(1, 2)
    await asyncio.sleep(0)
    first.cancel("lease_lost")
    first.extended_at -= 3600
    claims.renewal._give_up(time.monotonic())
    await asyncio.sleep(0)
    assert len(claims.slots.running) == 2, "its slot is in use"
    may_end.set()
    assert await claims.verbs() == {"1": "ack"}

    claims, may_end = Claims(call), asyncio.Event()
    first, second = claims.claims(1, 2)
    await asyncio.sleep(0)
    first.cancel("lease_lost")
    second.cancel("lease_lost")
    assert await claims.verbs() == {}
    assert ends == [[1, 2], [1, 2]]


async def test_a_call_is_cancelled_when_the_runs_of_all_its_tasks_are_to_be_cancelled() -> None:
    """Until then it continues, and a task that it has done is done."""
    may_end, ends = asyncio.Event(), []

    async def call(numbers: list[int]) -> list[Exception | None]:
        try:
            await may_end.wait()
        finally:
            ends.append(numbers)
        return [ValueError("no") if number == 2 else None for number in numbers]

    claims = Claims(call)
    first, second, _ = claims.claims(1, 2, 3)
    await asyncio.sleep(0)
    first.cancel("requested")
    second.cancel("requested")
    first.requested_at = second.requested_at = time.monotonic() - 3600
    claims.renewal._give_up(time.monotonic())
    await asyncio.sleep(0)
    assert len(claims.slots.running) == 3, "the handler has time until it is cancelled"
    may_end.set()
    assert await claims.verbs() == {"0": "ack", "1": "end_cancelled", "2": "ack"}

    claims, may_end = Claims(call), asyncio.Event()
    first, second = claims.claims(1, 2)
    await asyncio.sleep(0)
    first.cancel("requested")
    second.cancel("requested")
    assert await claims.verbs() == {"0": "end_cancelled", "1": "end_cancelled"}
    assert ends == [[1, 2, 3], [1, 2]]


async def test_a_call_begins_without_a_task_that_is_to_be_cancelled() -> None:
    begun = []

    async def call(numbers: list[int]) -> None:
        begun.append(numbers)

    claims = Claims(call)
    first, *_ = claims.claims(1, 2)
    first.cancel("requested")
    assert await claims.verbs() == {"0": "end_cancelled", "1": "ack"}
    assert begun == [[2]]


async def test_one_timeout_ends_the_call_and_charges_each_of_its_tasks() -> None:
    cancelled = []

    async def call(numbers: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(numbers)
            raise

    claims = Claims(call)
    members = claims.claims(1, 2, 3)
    await asyncio.sleep(0)
    assert len({each.deadline for each in members}) == 1
    claims.renewal._enforce_timeouts(members[0].deadline - 1)
    assert not members[0].cancelled_for
    claims.renewal._enforce_timeouts(members[0].deadline)
    settled = await claims.by_id()
    assert {(each.verb, each.max_attempts) for each in settled.values()} == {("retry", NEVER_LAST)}
    assert cancelled == [[1, 2, 3]]


async def test_a_call_that_ignores_its_cancellation_keeps_its_slots_and_not_its_tasks() -> None:
    may_end = asyncio.Event()

    async def call(_numbers: list[int]) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    claims = Claims(call)
    members = claims.claims(1, 2)
    await asyncio.sleep(0)
    claims.renewal._enforce_timeouts(members[0].deadline)
    claims.renewal._give_up(members[0].deadline + CLEANUP_SECONDS)
    assert (len(claims.slots.running), claims.slots.stuck, claims.slots.total) == (0, 2, 48)
    assert [each.verb for each in claims.group_state.outbox.waiting] == ["retry", "retry"]
    may_end.set()
    async with asyncio.timeout(5):
        while claims.slots.stuck:  # noqa: ASYNC110 -- nothing to wait for
            await asyncio.sleep(0)
    assert claims.slots.total == 50
    assert len(claims.group_state.outbox.waiting) == 2


@pytest.mark.parametrize("wait", [None, "10s"])
async def test_drain_releases_the_tasks_of_a_call_before_and_after_it_began(wait: str | None) -> None:
    async def call(_numbers: list[int]) -> None:
        await asyncio.Event().wait()

    for begun in (False, True):
        claims = Claims(call, batch_wait=wait)
        members = claims.claims(1, 2)
        if begun:
            await asyncio.sleep(0)
        for each in members:
            each.cancel("drain")
        assert await claims.verbs() == {"0": "release", "1": "release"}
        await asyncio.sleep(0)
        assert not claims.group_state.filling, "it keeps the payloads of a call that has ended"


async def test_with_a_bound_a_call_waits_until_it_is_full_or_the_bound_is_over() -> None:
    calls = []

    async def call(numbers: list[int]) -> None:
        calls.append(numbers)

    full = Claims(call, batch=3, batch_wait="10s")
    full.claims(1, 2)
    for _ in range(5):
        await asyncio.sleep(0)
    assert calls == []
    assert len(full.slots.running) == 2, "they hold slots"
    full.renewal._enforce_timeouts(time.monotonic() + 3600)  # the timeout is that of the call
    full.claims(3)
    assert set((await full.verbs()).values()) == {"ack"}
    late = Claims(call, batch=3, batch_wait="10ms")
    late.claims(4)
    await late.by_id()
    assert calls == [[1, 2, 3], [4]]


async def test_a_call_that_buries_in_its_cleanup_is_handed_back_uncharged_in_a_drain() -> None:
    async def call(_numbers: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Bury("cancelled")

    for numbers, verb in ([1, 2], "release"), ([1], "bury"):
        claims = Claims(call)
        members = claims.claims(*numbers)
        await asyncio.sleep(0)
        for each in members:
            each.cancel("drain")
        assert set((await claims.verbs()).values()) == {verb}


@pytest.mark.parametrize("why", ["drain", "no free slot", "suspects"])
async def test_a_call_does_not_wait_when_no_task_can_join_it(why: str) -> None:
    calls = []

    async def call(numbers: list[int]) -> None:
        calls.append(numbers)

    claims = Claims(call, batch_wait="10s")
    if why == "suspects":
        claims.slots.suspects.begin()
    if why == "no free slot":  # a stuck call of other tasks has the others
        claims.slots.withhold(47)
    claims.claims(1, 2, isolated=why == "suspects")
    if why == "no free slot":
        claims.claims(3, failures=1)
    if why == "drain":
        await asyncio.sleep(0)
        claims.slots.drain()
    await claims.by_id()
    assert calls in ([[1, 2]], [[1, 2], [3]])


@pytest.mark.parametrize("wait", [None, "10s"])
async def test_a_task_that_is_claimed_again_is_in_another_call(wait: str | None) -> None:
    """A fail-over lost its first claim. A guard that sees one task twice in a call would let neither run."""
    calls = []

    async def call(numbers: list[int]) -> None:
        calls.append(numbers)

    claims = Claims(call, batch=3, batch_wait=wait)
    claims.claims(0, 1, ids=["x", "y"])
    claims.claims(2, 3, 4, ids=["x", "y", "z"])
    async with asyncio.timeout(5):
        await claims.by_id()
    assert sorted(calls) == [[0, 1], [2, 3, 4]]
    assert len(claims.group_state.outbox.waiting) == 5


async def test_a_worker_that_was_suspended_runs_nothing_of_a_call() -> None:
    calls = []

    async def call(numbers: list[int]) -> None:
        calls.append(numbers)

    claims = Claims(call)
    members = claims.claims(1, 2)
    members[0].extended_at -= 3600
    assert await claims.verbs() == {"1": "ack"}
    assert calls == [[2]]
