"""Follow-ups: a task that is replaced while it is in flight is followed by what replaces it, once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import Client, SyncClient
from delayq.errors import Bury
from delayq.protocol.results import LostTask, Recovered, Settled, Verdict

from tests.redis.recovering import until
from tests.redis.state import NOW, Shard, State, envelope
from tests.redis.working import Handler, queue, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.protocol.envelope import Task

    from tests.servers import RedisServer

LATER = NOW + 60_000
NEXT = envelope(LATER, "next")
RUNS = State(
    processing={"a:7": NOW - 5, "b:8": NOW + 9000},
    tasks={"a": envelope(NOW - 9, "first"), "b": envelope(NOW - 9)},
    attempts={"a": "2 1 ~1:7:1 boom"},
    followups={"a": NEXT},
)
FOLLOWED = RUNS.but(
    processing={"b:8": NOW + 9000},
    delayed={"a": LATER},
    tasks={"a": NEXT, "b": envelope(NOW - 9)},
    attempts={},
    followups={},
    alarm=1,
)


def recover(shard: Shard, verdict: Verdict) -> Recovered:
    shard.run(shard.commands.lock("a", "me", 1000, lock="recovery_lock"))
    options: dict[str, Any] = {"reason": "why", "wait_ms": 1, "max_crashes": 2, "failed": 0}
    return shard.run(shard.commands.recover(0, b"a:7", "me", verdict, expiry_ms=NOW - 5, **options))


ENDS: dict[str, tuple[Callable[[Shard], Any], object, dict[str, int]]] = {
    "ack": (lambda s: s.run(s.commands.ack(0, [b"a:7"])), [Settled.ACKED], {"acked": 1}),
    "bury": (lambda s: s.run(s.commands.bury(0, ["a:7", "no"])), [Settled.SUPERSEDED], {"buried": 1}),
    "last attempt": (
        lambda s: s.run(s.commands.retry(0, ["a:7", 5, 1, "boom"], max_attempts=3)),
        [Settled.SUPERSEDED],
        {"buried": 1},
    ),
    "last crash": (
        lambda s: s.run(s.commands.reclaim(0, max_crashes=2)),
        [("a:7", "superseded")],
        {"buried": 1},
    ),
    "completed": (lambda s: recover(s, Verdict.COMPLETE), Recovered.COMPLETED, {"completed": 1}),
    "judged dead": (lambda s: recover(s, Verdict.BURY), Recovered.SUPERSEDED, {"buried": 1}),
}
GOES_ON: dict[str, Callable[[Shard], Any]] = {
    "retry": lambda s: s.run(s.commands.retry(0, ["a:7", 5, 1, "boom"], max_attempts=9)),
    "release": lambda s: s.run(s.commands.release(0, ["a:7", NOW - 9])),
    "reclaim": lambda s: s.run(s.commands.reclaim(0, max_crashes=9)),
}


@pytest.mark.parametrize("end", ENDS)
def test_it_becomes_the_task_once_that_has_ended(shard: Shard, end: str) -> None:
    """Fresh, at its own due time; where there would be a dead letter, it takes its place. Memory may be full."""
    act, outcome, stats = ENDS[end]
    shard.seed(RUNS)
    with shard.full_memory():
        assert act(shard) == outcome
    assert shard.whole() == FOLLOWED.but(stats=stats)


@pytest.mark.parametrize("goes_on", GOES_ON)
def test_it_waits_while_the_task_is_tried_again_with_its_own_payload(shard: Shard, goes_on: str) -> None:
    shard.seed(RUNS)
    GOES_ON[goes_on](shard)
    after = shard.whole()
    assert (after.followups, after.tasks) == (RUNS.followups, RUNS.tasks)
    assert [*after.retry, *after.suspect] == ["a"]


WAITS = RUNS.but(processing={}, retry={"a": LATER}, tasks={"a": envelope(NOW - 9, "first")})


def test_whoever_cancels_or_replaces_the_task_forgets_its_follow_up(shard: Shard) -> None:
    """Of a task in flight, cancel forgets what would follow and nothing else."""
    shard.seed(RUNS)
    assert shard.run(shard.commands.cancel("a")).value == "in_flight"
    assert shard.whole() == RUNS.but(followups={})
    shard.seed(WAITS)
    shard.run(shard.commands.cancel("a"))
    assert shard.whole().followups == {}
    shard.seed(WAITS)
    options: dict[str, Any] = {"repeated": 0, "max_length": 9, "max_delay_ms": 90_000}
    shard.run(shard.commands.schedule(0, ["a", "+5", envelope()[:-6]], if_exists="replace", **options))
    after = shard.whole()
    assert (after.followups, after.delayed, after.retry) == ({}, {"a": NOW + 5}, {})


@pytest.mark.parametrize(
    ("settled", "counter"),
    [({}, "adopted"), ({"dlq": {"a": NOW}, "dlq_info": {"a": "1 0 buried no"}}, "deduplicated")],
    ids=["acked", "buried"],
)
def test_the_reaper_makes_it_the_task_when_a_worker_settled_that_and_knew_no_follow_ups(
    shard: Shard, settled: dict[str, Any], counter: str
) -> None:
    shard.seed(State(followups={"a": NEXT}, **settled))
    homeless = shard.run(shard.commands.reconcile(0, "followups", 0)).homeless
    shard.run(shard.commands.restore_orphans(0, list(map(LostTask, homeless))))
    assert shard.whole() == State(delayed={"a": LATER}, tasks={"a": NEXT}, alarm=1, stats={counter: 1})


def test_a_task_with_a_follow_up_stays_in_its_shard_until_it_has_ended(shard: Shard) -> None:
    before = shard.seed(WAITS)
    migration_batch = shard.run(shard.commands.migrate_out(0, [b"a"], near_ms=1000))
    assert (migration_batch.stay, migration_batch.tasks, shard.whole()) == ([b"a"], [], before)


class Recurring(Handler):
    """Schedules its own task again, a few times; the last run buries itself."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client, self.payloads = client, list[Any]()

    async def handle(self, task: Task) -> None:
        self.payloads.append(task.payload)
        if task.payload < 3:
            await self.client.schedule(task.payload + 1, delay_ms=0, task_id=task.id, if_exists="replace")
        if task.payload == 1 and task.attempt == 1:
            raise ValueError
        if task.payload == 2:
            raise Bury("no more")


@pytest.mark.one_server
async def test_a_handler_schedules_its_own_task_again(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed run keeps its payload; a dead letter is replaced, and the log says so."""
    with SyncClient(redis_server.url, queue="orders") as client:
        client.schedule(0, delay_ms=0, task_id="a")
    async with Client(redis_server.url, queue="orders") as own:
        handler = Recurring(own)
        spec = queue(2, backoff={"delaysSeconds": [0]})
        async with working([redis_server.url], handler, spec) as slots:
            await until(lambda: slots.counters.settled["acked"] == 3)
        assert await own.get("a") is None
    assert handler.payloads == [0, 1, 1, 2, 3]
    [replaced] = [record for record in caplog.records if record.message == "dead_letter_replaced"]
    assert replaced.fields["task_id"] == "a"  # type: ignore[attr-defined] # by our `extra`
