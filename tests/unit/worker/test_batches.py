"""From the end of a call of several tasks to their settlements: each task has one, and only its own fault counts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq import App, Bury, Retry, Seen
from delayq.connection import Address, AsyncConnection
from delayq.handlers.app import AppHandler
from delayq.protocol.commands import Commands
from delayq.protocol.results import Claimed, Lease, Ticket
from delayq.service.counters import WorkerCounters
from delayq.service.shard_groups import ShardGroup
from delayq.worker.batches import size_of
from delayq.worker.claim_loop import Claim, ClaimLoop
from delayq.worker.executor import NEVER_LAST, Executor
from delayq.worker.lease_renewal import CLEANUP_SECONDS, LeaseRenewal
from delayq.worker.slots import GroupState, Slots

from tests.unit.handlers.support import a_task, document

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delayq.worker.batches import Member
    from delayq.worker.settlements import Settlement

QUEUE = document(
    {"python": {"app": "shop:app"}},
    worker={"concurrency": 50},
    delivery={"maxAttempts": 3, "handlerTimeoutSeconds": 60},
)


class Claims:
    """A claim loop without Redis, of an App with one batch kind named `call`."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401
        app, counters = App(), WorkerCounters("worker", "orders")
        app.task(name="call", batch=options.pop("batch", 50), **options)(function)
        handler = AppHandler(app, QUEUE)
        self.slots, self.counters = Slots(QUEUE.spec, counters), counters
        self.runner = Executor(
            handler.call, QUEUE.spec.delivery, counters, handler.kinds, batches=handler.batches
        )
        commands = Commands("orders")
        self.group_state = GroupState(self.slots, ShardGroup(commands))
        connection = AsyncConnection(Address.from_url("redis://unused"))
        self._exchange = ClaimLoop(self.group_state, commands, connection, self.runner)
        self.renewal = LeaseRenewal(self.group_state, commands, connection, self.runner)

    def claimed(
        self, *bodies: object, failures: int = 0, ids: Sequence[str] = (), isolated: bool = False
    ) -> list[Member]:
        """Let one claim return tasks 0, 1, …, with these payloads."""
        ticket = Ticket("worker-0", 1, 0)
        first = len(self.slots.running)
        leases = [
            Lease(
                replace(
                    a_task(str(body).encode(), task_id=ids[nth - first] if ids else str(nth)),
                    kind="call",
                    kind_version=1,
                ),
                0,
                b"%d:41" % nth,
                failures,
            )
            for nth, body in enumerate(bodies, first)
        ]
        claim = Claim(Commands("orders").claim(0, 9, 30_000, ticket=ticket), 0, 9, ticket, isolated)
        answer = Claimed(leases=leases, unreadable=[], more=False, now_ms=0)
        self._exchange._claimed(claim, answer, time.monotonic())
        return cast("list[Member]", list(self.slots.running.values())[first:])

    async def settled(self) -> dict[str, Settlement]:
        async with asyncio.timeout(5):
            while self.slots.running:  # noqa: ASYNC110 -- nothing to wait for
                await asyncio.sleep(0)
        assert self.slots.free == self.slots.total, "a slot is lost"
        waiting = self.group_state.outbox.waiting
        assert len({each.lease.member for each in waiting}) == len(waiting), "one settlement each"
        return {each.lease.task.id: each for each in waiting}

    async def verbs(self) -> dict[str, str]:
        return {task_id: settlement.verb for task_id, settlement in (await self.settled()).items()}


def sample(count: int, failures: int, most: int = 8) -> int:
    return size_of(count, failures, most)


def test_each_failure_makes_calls_smaller_and_the_last_attempt_is_one_alone() -> None:
    assert [sample(500, failures) for failures in range(5)] == [500, 62, 7, 1, 1]
    assert [sample(500, failures, 3) for failures in range(4)] == [500, 62, 1, 1]
    assert [sample(500, failures, 1) for failures in range(3)] == [500, 1, 1]
    assert sample(10_000, 10_000, 10_000) == 1


async def test_what_is_claimed_together_is_one_call_with_an_outcome_for_each() -> None:
    calls = []

    async def call(numbers: list[int]) -> list[Exception | None]:
        calls.append(numbers)
        outcomes = [None, Retry("later", delay_ms=5), Bury("never"), Seen(), KeyError("x")]
        return [outcomes[number] for number in numbers]

    claims = Claims(call)
    claims.claimed(0, 1)
    claims.claimed(2, '"text"', 3, 4)  # the answer of another shard in the same exchange
    settled = await claims.settled()
    assert calls == [[0, 1, 2, 3, 4]]
    assert [settled[str(nth)].verb for nth in range(6)] == ["ack", "retry", "bury", "bury", "ack", "retry"]
    assert settled["1"].arguments == (5, 1, "later")
    assert "valid integer" in str(settled["3"].arguments)
    assert (settled["1"].max_attempts, settled["5"].max_attempts) == (3, 3)
    assert (sum(claims.counters.handler.counts), sum(claims.counters.claimed_to_started.counts)) == (5, 6)


async def test_no_call_is_larger_than_batch_or_mixes_tasks_that_failed() -> None:
    calls = []

    def call(numbers: list[int]) -> None:
        calls.append(numbers)

    claims = Claims(call, batch=4)
    claims.claimed(*range(6))
    claims.claimed(6, 7, failures=1)
    assert set((await claims.verbs()).values()) == {"ack"}
    assert sorted(calls) == [[0, 1, 2, 3], [4, 5], [6], [7]]


@pytest.mark.parametrize("error", [ValueError("x"), Bury("never"), Seen(), SystemExit(1), Retry("away")])
async def test_an_error_that_is_raised_is_final_for_a_task_alone_only(error: BaseException) -> None:
    async def call(_numbers: list[int]) -> None:
        raise error

    claims = Claims(call, max_attempts=1)
    claims.claimed(1, 2)
    settled = await claims.settled()
    assert [(each.verb, each.max_attempts) for each in settled.values()] == [("retry", NEVER_LAST)] * 2
    alone = Claims(call, max_attempts=1)
    alone.claimed(1)
    [settlement] = (await alone.settled()).values()
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
    claims.claimed(1, 2)
    for settlement in (await claims.settled()).values():
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
    first, second = claims.claimed(1, 2)
    await asyncio.sleep(0)
    first.cancel("lease_lost")
    first.extended_at -= 3600
    claims.renewal._give_up(time.monotonic())
    await asyncio.sleep(0)
    assert len(claims.slots.running) == 2, "its slot is in use"
    may_end.set()
    assert await claims.verbs() == {"1": "ack"}

    claims, may_end = Claims(call), asyncio.Event()
    first, second = claims.claimed(1, 2)
    await asyncio.sleep(0)
    first.cancel("lease_lost")
    second.cancel("lease_lost")
    assert await claims.verbs() == {}
    assert ends == [[1, 2], [1, 2]]


async def test_one_timeout_ends_the_call_and_charges_each_of_its_tasks() -> None:
    cancelled = []

    async def call(numbers: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(numbers)
            raise

    claims = Claims(call)
    members = claims.claimed(1, 2, 3)
    await asyncio.sleep(0)
    assert len({each.deadline for each in members}) == 1
    claims.renewal._enforce_timeouts(members[0].deadline - 1)
    assert not members[0].cancelled_for
    claims.renewal._enforce_timeouts(members[0].deadline)
    settled = await claims.settled()
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
    members = claims.claimed(1, 2)
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
        members = claims.claimed(1, 2)
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
    full.claimed(1, 2)
    for _ in range(5):
        await asyncio.sleep(0)
    assert calls == []
    assert len(full.slots.running) == 2, "they hold slots"
    full.renewal._enforce_timeouts(time.monotonic() + 3600)  # the timeout is that of the call
    full.claimed(3)
    assert set((await full.verbs()).values()) == {"ack"}
    late = Claims(call, batch=3, batch_wait="10ms")
    late.claimed(4)
    await late.settled()
    assert calls == [[1, 2, 3], [4]]


async def test_a_call_that_buries_in_its_cleanup_is_handed_back_uncharged_in_a_drain() -> None:
    async def call(_numbers: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Bury("cancelled")

    for numbers, verb in ([1, 2], "release"), ([1], "bury"):
        claims = Claims(call)
        members = claims.claimed(*numbers)
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
    claims.claimed(1, 2, isolated=why == "suspects")
    if why == "no free slot":
        claims.claimed(3, failures=1)
    if why == "drain":
        await asyncio.sleep(0)
        claims.slots.drain()
    await claims.settled()
    assert calls in ([[1, 2]], [[1, 2], [3]])


@pytest.mark.parametrize("wait", [None, "10s"])
async def test_a_task_that_is_claimed_again_is_in_another_call(wait: str | None) -> None:
    """A fail-over lost its first claim. A guard that sees one task twice in a call would let neither run."""
    calls = []

    async def call(numbers: list[int]) -> None:
        calls.append(numbers)

    claims = Claims(call, batch=3, batch_wait=wait)
    claims.claimed(0, 1, ids=["x", "y"])
    claims.claimed(2, 3, 4, ids=["x", "y", "z"])
    async with asyncio.timeout(5):
        await claims.settled()
    assert sorted(calls) == [[0, 1], [2, 3, 4]]
    assert len(claims.group_state.outbox.waiting) == 5


async def test_a_worker_that_was_suspended_runs_nothing_of_a_call() -> None:
    calls = []

    async def call(numbers: list[int]) -> None:
        calls.append(numbers)

    claims = Claims(call)
    members = claims.claimed(1, 2)
    members[0].extended_at -= 3600
    assert await claims.verbs() == {"1": "ack"}
    assert calls == [[2]]
