"""A task in flight is cancelled: by whatever ends its lease, unless that is an ack, and by its worker before that."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from delayq import Client
from delayq.connection import Address
from delayq.contract.handler import ExecHandler as ExecSpec
from delayq.handlers import cancelled
from delayq.handlers.exec import ExecHandler
from delayq.handlers.python import in_thread
from delayq.handlers.threads import Threads
from delayq.protocol.commands import Commands
from delayq.protocol.envelope import Further, encode, with_fields
from delayq.protocol.results import Cancelled, LostTask, Recovered, Settled, Verdict
from delayq.worker.worker import Worker

from tests.redis.state import NOW, Shard, State, envelope
from tests.redis.working import queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from delayq.handlers.base import HandlerCall
    from delayq.protocol.commands import Call
    from delayq.protocol.envelope import Task

QUEUE = queue(8, leaseDurationSeconds=3)
LATER = NOW + 60_000
TAGGED = with_fields(encode(None, None, None)[0], Further("", 0, 90_000, None, ("x",))) + NOW.to_bytes(
    6, "big"
)
RUNNING = State(
    processing={"a:7": NOW - 1},
    tasks={"a": TAGGED},
    attempts={"a": "1 1 boom"},
    deadlines={"a": NOW + 90_001},
    tags={"x a": 0},
)
TO_CANCEL = RUNNING.but(cancelling=frozenset({"a"}))
ON_KEYS = frozenset(
    {
        *(
            "hget",
            "hmget",
            "hlen",
            "hexists",
            "hset",
            "hdel",
            "hincrby",
            "hstrlen",
            "exists",
            "get",
            "del",
            "lpush",
        ),
        *("llen", "zadd", "zrem", "zscore", "zcard", "zrange", "zrangebyscore", "zrangebylex"),
    }
)
GONE = State(tasks={}, stats={"cancelled": 1})
FOLLOWED = State(
    tasks={"a": envelope(LATER)}, delayed={"a": LATER}, tags={"x a": 0}, alarm=1, stats={"cancelled": 1}
)


def recover(shard: Shard, verdict: Verdict) -> Recovered:
    shard.run(shard.commands.lock("a", "me", 1000, lock="recovery_lock"))
    options: dict[str, Any] = {"reason": "", "wait_ms": 1, "failed": 0, "max_crashes": 9}
    return shard.run(shard.commands.recover(0, b"a:7", "me", verdict, expiry_ms=NOW - 1, **options))


ENDS: dict[str, tuple[Callable[[Shard], Any], Any]] = {
    "end_cancelled": (lambda s: s.run(s.commands.end_cancelled(0, [b"a:7"])), [Settled.CANCELLED]),
    "retry": (
        lambda s: s.run(s.commands.retry(0, ["a:7", 0, 1, "no"], max_attempts=9)),
        [Settled.CANCELLED],
    ),
    "last retry": (
        lambda s: s.run(s.commands.retry(0, ["a:7", 0, 1, "no"], max_attempts=1)),
        [Settled.CANCELLED],
    ),
    "bury": (lambda s: s.run(s.commands.bury(0, ["a:7", "no"])), [Settled.CANCELLED]),
    "release": (lambda s: s.run(s.commands.release(0, ["a:7", NOW])), [Settled.CANCELLED]),
    "park": (lambda s: s.run(s.commands.park(0, ["a:7", ""])), [Settled.CANCELLED]),
    "reclaim": (lambda s: s.run(s.commands.reclaim(0, max_crashes=9)), [("a:7", "cancelled")]),
    "requeue": (lambda s: recover(s, Verdict.REQUEUE), Recovered.CANCELLED),
    "judged dead": (lambda s: recover(s, Verdict.BURY), Recovered.CANCELLED),
}


@pytest.mark.parametrize("how", ENDS)
def test_whatever_ends_the_lease_ends_the_task(shard: Shard, how: str) -> None:
    """Also with full memory. A follow-up that was stored since the cancellation takes its place."""
    end, answer = ENDS[how]
    shard.seed(TO_CANCEL)
    with shard.full_memory():
        assert end(shard) == answer
    assert shard.whole() == GONE
    shard.seed(TO_CANCEL.but(followups={"a": envelope(LATER)}))
    assert end(shard) == answer
    assert shard.whole() == FOLLOWED


@pytest.mark.parametrize("how", [how for how in ENDS if how != "end_cancelled"])
def test_a_request_is_about_the_runs_of_its_time(shard: Shard, how: str) -> None:
    """As a process of an older version leaves it, which returned the task to an index."""
    end, answer = ENDS[how]
    shard.seed(TO_CANCEL)
    shard.redis.hset(shard.keys.cancelling, "a", 6)
    assert end(shard) != answer
    assert "a" in shard.whole().envelopes


def test_a_claim_whose_reply_was_lost_does_not_bring_it_back(shard: Shard) -> None:
    from delayq.protocol.results import Ticket  # noqa: PLC0415

    shard.seed(State(delayed={"a": NOW, "b": NOW}))
    shard.run(shard.commands.claim(0, 2, 1000, ticket=Ticket("me", 1, NOW)))
    assert shard.run(shard.commands.cancel("a", running=True)) is Cancelled.CANCELLING
    assert shard.run(shard.commands.unclaim(0, "me", 1, 1000)) == 1
    after = shard.whole()
    assert (set(after.envelopes), set(after.delayed), after.cancelling) == ({"b"}, {"b"}, frozenset())
    assert (after.stats["cancelled"], after.stats["released"]) == (1, 1)


def test_an_ack_wins_and_leaves_nothing_behind(shard: Shard) -> None:
    shard.seed(TO_CANCEL)
    assert shard.run(shard.commands.ack(0, [b"a:7"])) == [Settled.ACKED]
    assert shard.whole() == State(tasks={}, stats={"acked": 1})
    assert shard.run(shard.commands.cancel("a", running=True)) is Cancelled.NOT_FOUND


def test_a_check_that_says_done_wins_and_one_that_says_wait_is_asked_again(shard: Shard) -> None:
    shard.seed(TO_CANCEL)
    assert recover(shard, Verdict.COMPLETE) is Recovered.COMPLETED
    assert shard.whole().cancelling == frozenset()
    shard.seed(TO_CANCEL)
    assert recover(shard, Verdict.WAIT) is Recovered.WAITED
    assert shard.whole().cancelling == {"a"}


def test_the_request_deletes_the_follow_up_and_extensions_say_so(shard: Shard) -> None:
    """Also with full memory. A task that waits is deleted, a dead letter is not."""
    before = shard.seed(
        RUNNING.but(processing={"a:7": NOW, "b:8": NOW}, followups={"a": envelope(LATER)}, tasks=None)
    )
    with shard.full_memory():
        assert shard.run(shard.commands.cancel("a", running=True)) is Cancelled.CANCELLING
        assert shard.run(shard.commands.cancel("a", running=True)) is Cancelled.CANCELLING
    assert shard.whole() == before.but(followups={}, cancelling=frozenset({"a"}))
    assert shard.run(shard.commands.extend(0, [b"b:8", b"c:9", b"a:7"], 1000)) == ({1}, {2})
    assert (shard.view("a").cancelling, shard.view("b").cancelling) == (True, False)
    shard.seed(State(delayed={"a": NOW}, dlq={"d": NOW}, dlq_info={"d": "1 0 buried no"}))
    assert shard.run(shard.commands.cancel("a", running=True)) is Cancelled.CANCELLED
    assert shard.run(shard.commands.cancel("d", running=True)) is Cancelled.DEAD


def test_the_reaper_ends_an_orphan_and_removes_requests_without_a_run(shard: Shard) -> None:
    """The index was lost, or a process of an older version returned the task to one."""
    shard.seed(TO_CANCEL.but(processing={}))
    found = shard.run(shard.commands.reconcile(0, "cancelling", 0))
    assert found.homeless == [b"a"]
    page = shard.run(shard.commands.restore_orphans(0, [LostTask(b"a")]))
    assert page.ids == []
    assert shard.whole() == GONE
    left = shard.seed(
        State(delayed={"a": LATER}, processing={"c:7": NOW}, cancelling=frozenset({"a", "b", "c"}))
    )
    found = shard.run(shard.commands.reconcile(0, "cancelling", 0))
    assert sorted(found.tasks) == [("a", "pruned"), ("b", "pruned")]
    assert shard.whole() == left.but(cancelling=frozenset({"c"}), stats={"pruned": 2})


def test_a_shard_without_a_request_runs_no_further_command(shard: Shard) -> None:
    """As Redis counts them. What is read of `stats` for the format says that there is none."""
    shard.seed(State(delayed={f"t{nth}": NOW for nth in range(9)}))
    members = [lease.member for lease in shard.run(shard.commands.claim(0, 9, 60_000)).leases]
    expected: dict[str, tuple[Call[Any], dict[str, int]]] = {
        "extend": (shard.commands.extend(0, members[:2], 60_000), {"zrem": 2, "zadd": 2}),
        "ack": (
            shard.commands.ack(0, members[:2]),
            {"zrem": 2, "hstrlen": 2, "exists": 1, "hdel": 2, "hincrby": 2},
        ),
        "release": (
            shard.commands.release(0, [members[2].decode(), NOW]),
            {
                "zrem": 1,
                "hget": 1,
                "zrangebyscore": 1,
                "zadd": 1,
                "llen": 1,
                "del": 1,
                "lpush": 1,
                "hincrby": 1,
            },
        ),
    }
    for verb, (call, commands) in expected.items():
        shard.redis.delete(shard.keys.wake)
        shard.redis.config_resetstat()
        shard.run(call)
        found: Any = shard.redis.info("commandstats")
        counted = {name.removeprefix("cmdstat_"): each["calls"] for name, each in found.items()}
        names = {name: count for name, count in counted.items() if name in ON_KEYS}
        assert names == commands | {"hmget": 1}, verb


# by a worker


class Shop:
    """A worker with one task in flight, which a test cancels."""

    def __init__(self, client: Client, worker: Worker) -> None:
        self.client, self.worker = client, worker

    async def ends(self) -> None:
        async with asyncio.timeout(20):
            while await self.client.get("a"):  # noqa: ASYNC110 -- Redis has no event for it
                await asyncio.sleep(0.01)

    async def settled(self) -> str:
        async with asyncio.timeout(20):
            while not self.worker.counters.settled:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.01)
        [outcome] = self.worker.counters.settled
        return outcome


@asynccontextmanager
async def shop(url: str, name: str, call: HandlerCall) -> AsyncIterator[Shop]:
    commands, address, stop = Commands(name), Address.from_url(url), asyncio.Event()
    worker = Worker(QUEUE.spec, commands, address, call)
    running = asyncio.create_task(worker.run(stop, asyncio.Event()))
    try:
        async with Client(address, queue=name) as client:
            await client.schedule(1, task_id="a")
            yield Shop(client, worker)
    finally:
        stop.set()
        await running


async def test_a_coroutine_is_cancelled_and_may_clean_up(
    redis_url: str, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The task is in flight until it has; it is not retried."""
    caplog.set_level("INFO")
    began, interrupted, may_end, attempts = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[int]()

    async def call(task: Task) -> None:
        attempts.append(task.attempt)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()
            await may_end.wait()
            raise ValueError("in its cleanup")

    async with shop(redis_url, queue_name, call) as here:
        await began.wait()
        asked_at = time.monotonic()
        assert await here.client.cancel("a") is Cancelled.IN_FLIGHT
        assert await here.client.cancel("a", running=True) is Cancelled.CANCELLING
        async with asyncio.timeout(10):
            await interrupted.wait()
        assert time.monotonic() - asked_at < QUEUE.spec.delivery.lease_duration_seconds
        view = await here.client.get("a")
        assert view is not None
        assert (view.state, view.cancelling) == ("in_flight", True)
        may_end.set()
        await here.ends()
        counts = await here.client.counts()
        assert await here.settled() == "cancelled"
    assert {name: counts.stats.get(name, 0) for name in ("cancelled", "retried", "acked")} == {
        "cancelled": 1,
        "retried": 0,
        "acked": 0,
    }
    assert (attempts, counts.in_flight, counts.waiting) == ([1], 0, 0)
    events = [vars(each) for each in caplog.records if "cancel" in each.getMessage()]
    assert [each["message"] for each in events] == ["cancellation_requested", "run_cancelled"]
    assert events[1]["fields"]["error"].startswith("ValueError: in its cleanup")


async def test_a_thread_that_looks_ends_before_its_task(redis_url: str, queue_name: str) -> None:
    threads, began, ends = Threads(8), asyncio.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def function(_task: Task) -> None:
        loop.call_soon_threadsafe(began.set)
        while not cancelled():
            time.sleep(0.01)
        ends.append("thread")

    async with shop(redis_url, queue_name, in_thread(function, threads)) as here:
        await began.wait()
        assert await here.client.cancel("a", running=True) is Cancelled.CANCELLING
        await here.ends()
        assert ends == ["thread"]
        assert await here.settled() == "cancelled"
    threads.close()


async def test_a_command_gets_sigterm(redis_url: str, queue_name: str, tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    code = f"trap 'echo > {ended}; exit 1' TERM; echo > {begun}; sleep 60 & wait"
    handler = ExecHandler(ExecSpec(command=("sh", "-c", code)))
    await handler.start()
    async with shop(redis_url, queue_name, handler.call) as here:
        async with asyncio.timeout(20):
            while not begun.exists():  # noqa: ASYNC110 -- a command has no event for it
                await asyncio.sleep(0.01)
        assert await here.client.cancel("a", running=True) is Cancelled.CANCELLING
        await here.ends()
        assert ended.exists()
        assert await here.settled() == "cancelled"
    await handler.close()


async def test_a_run_that_ends_first_is_done(redis_url: str, queue_name: str) -> None:
    """Its worker has not read the request yet: the ack wins."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def call(_task: Task) -> None:
        began.set()
        await may_end.wait()

    async with shop(redis_url, queue_name, call) as here:
        await began.wait()
        assert await here.client.cancel("a", running=True) is Cancelled.CANCELLING
        may_end.set()
        await here.ends()
        assert await here.settled() == "acked"
        assert (await here.client.counts()).stats.get("cancelled", 0) == 0


async def test_a_worker_that_stops_first_ends_the_task(redis_url: str, queue_name: str) -> None:
    """It releases what runs; the task is not released."""
    began = asyncio.Event()

    async def call(_task: Task) -> None:
        began.set()
        await asyncio.Event().wait()

    async with shop(redis_url, queue_name, call) as here:
        await began.wait()
        assert await here.client.cancel("a", running=True) is Cancelled.CANCELLING
        for running in here.worker.slots.running.values():
            running.cancel("drain")
        await here.ends()
        assert await here.settled() == "cancelled"
