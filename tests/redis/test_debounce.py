"""if_exists="debounce": calls with one ID are one run, and the due time moves no further than a cap.

Every verb with it is in test_machine.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from delayq import Client, SyncClient
from delayq.client.encoding import NewTask
from delayq.errors import InvalidTask, TasksRefused
from delayq.protocol.results import Outcome

from tests.redis.state import NOW, Shard, State

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task
    from delayq.protocol.results import Scheduled

LEASE_MS = 60_000


async def extend(clients: list[Client], contents: range) -> list[Scheduled]:
    """Concurrent calls for one ID: run when 300 ms have passed without another one, at most 950 ms after the first."""
    return await asyncio.gather(
        *(
            clients[n % len(clients)].schedule(
                n, delay_ms=300, task_id="digest", if_exists="debounce", debounce_ms=950
            )
            for n in contents
        )
    )


def due(shard: Shard) -> list[Task]:
    return [lease.task for lease in shard.run(shard.commands.claim(0, 10, LEASE_MS)).leases]


async def test_a_thousand_concurrent_extends_are_one_run_not_beyond_the_cap(
    shard: Shard, redis_url: str
) -> None:
    """Four clients extend it 1,000 times at once, then again every 100 ms: it never falls due before the cap."""
    clients = [Client(redis_url, queue=shard.commands.queue) for _ in range(4)]
    for client in clients:
        await client.open()
    for step in range(10):
        shard.clock(NOW + 100 * step)
        done = await extend(clients, range(1000))
        outcomes = [each.outcome for each in done]
        assert outcomes.count(Outcome.CREATED) == (step == 0)
        assert set(outcomes) <= {Outcome.CREATED, Outcome.REPLACED}
        assert due(shard) == []
        assert shard.view("digest").at_ms == min(NOW + 100 * step + 300, NOW + 950)
    shard.clock(NOW + 949)
    assert due(shard) == []
    shard.clock(NOW + 950)
    [task] = due(shard)
    assert (task.id, task.due_ms) == ("digest", NOW + 950)
    for client in clients:
        await client.close()
    assert shard.run(shard.commands.counts(0)).waiting == 0


def test_calls_during_a_run_are_one_more_run_with_a_cap_of_its_own(shard: Shard, redis_url: str) -> None:
    with SyncClient(redis_url, queue=shard.commands.queue) as client:

        def call(content: int) -> Outcome:
            return client.schedule(
                content, delay_ms=300, task_id="a", if_exists="debounce", debounce_ms=500
            ).outcome

        assert call(1) == Outcome.CREATED
        shard.clock(NOW + 300)
        [lease] = shard.run(shard.commands.claim(0, 9, LEASE_MS)).leases
        assert call(2) == Outcome.FOLLOWS
        shard.clock(NOW + 599)
        assert call(3) == Outcome.FOLLOWS
        shard.run(shard.commands.ack(0, [lease.member]))
        view = shard.view("a")
        assert (view.body, view.at_ms) == (b"3", NOW + 800), (
            "the cap counts from the first call during the run"
        )
        shard.clock(NOW + 700)
        assert call(4) == Outcome.REPLACED
        assert shard.view("a").at_ms == NOW + 800


def test_a_task_that_failed_or_is_dead_begins_anew(shard: Shard, redis_url: str) -> None:
    """What waits for its next attempt has run already: the new content runs, with all its attempts and a new cap."""
    with SyncClient(redis_url, queue=shard.commands.queue) as client:

        def call() -> Outcome:
            return client.schedule(
                7, delay_ms=300, task_id="a", if_exists="debounce", debounce_ms=400
            ).outcome

        for settle in ("retry", "bury"):
            shard.seed(State())
            shard.clock(NOW)
            call()
            shard.clock(NOW + 390)
            [lease] = shard.run(shard.commands.claim(0, 9, LEASE_MS)).leases
            retry = shard.commands.retry(0, [lease.member, 5000, 1, "no"], max_attempts=9)
            shard.run(retry if settle == "retry" else shard.commands.bury(0, [lease.member, "no"]))
            assert call() == Outcome.REPLACED
            view = shard.view("a")
            assert (view.at_ms, view.failed.failures) == (NOW + 690, 0)


@pytest.mark.parametrize("redrives", [False, True])
def test_a_task_that_was_put_back_without_a_run_keeps_its_cap(
    shard: Shard, redis_url: str, *, redrives: bool
) -> None:
    """A guard was busy, the worker is too old, or an operator has redriven it."""
    with SyncClient(redis_url, queue=shard.commands.queue) as client:
        for step in range(4):
            shard.clock(NOW + 300 * step)
            client.schedule(step, delay_ms=300, task_id="a", if_exists="debounce", debounce_ms=1000)
            assert shard.view("a").at_ms == min(NOW + 300 * step + 300, NOW + 1000)
            if step < 3:
                shard.clock(NOW + 300 * step + 300)
                [lease] = shard.run(shard.commands.claim(0, 9, LEASE_MS)).leases
                if redrives:
                    shard.run(shard.commands.bury(0, [lease.member, "no"]))
                    shard.run(shard.commands.redrive(0, ["a", 5000]))
                else:
                    shard.run(shard.commands.retry(0, [lease.member, 5000, 0, "busy"], max_attempts=9))


def test_the_cap_is_needed_and_belongs_to_debounce_only(redis_url: str, queue_name: str) -> None:
    with SyncClient(redis_url, queue=queue_name) as client:
        with pytest.raises(InvalidTask, match=r'if_exists="debounce" needs debounce_ms'):
            client.schedule(1, delay_ms=1, task_id="a", if_exists="debounce")
        with pytest.raises(InvalidTask, match=r'debounce_ms of task a: expected if_exists="debounce"'):
            client.schedule(1, delay_ms=1, task_id="a", debounce_ms=5)
        with pytest.raises(
            InvalidTask, match=r'if_exists="debounce" needs an ID that its calls have in common'
        ):
            client.schedule(1, delay_ms=1, if_exists="debounce", debounce_ms=5)
        with pytest.raises(InvalidTask, match="expected a whole number of milliseconds from 1"):
            client.schedule(1, delay_ms=1, task_id="a", if_exists="debounce", debounce_ms=0)
        with pytest.raises(
            InvalidTask, match=r"debounce_ms of task a: expected at least the delay of 6, .* got 5"
        ):
            client.schedule(1, delay_ms=6, task_id="a", if_exists="debounce", debounce_ms=5)
        tasks = [
            NewTask(1, 9, task_id="a", debounce_ms=9),
            NewTask(1, 9, task_id="b"),
            NewTask(1, 9, debounce_ms=5),
        ]
        with pytest.raises(TasksRefused) as caught:
            client.schedule_many(tasks, if_exists="debounce")
        assert list(caught.value.refused) == [1, 2]
