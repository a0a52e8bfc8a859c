"""Follow-ups: a task that is replaced in flight is followed by its replacement, where test_machine.py does not get."""

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


@pytest.mark.parametrize("end", ENDS)
def test_it_becomes_the_task_once_that_has_ended(shard: Shard, end: str) -> None:
    """Fresh, at its own due time; where there would be a dead letter, it takes its place. Memory may be full."""
    act, outcome, stats = ENDS[end]
    shard.seed(RUNS)
    with shard.full_memory():
        assert act(shard) == outcome
    assert shard.whole() == FOLLOWED.but(stats=stats)


def test_the_reaper_makes_it_the_task_if_that_was_lost(shard: Shard) -> None:
    shard.seed(State(followups={"a": NEXT}))
    homeless = shard.run(shard.commands.reconcile(0, "followups", 0)).homeless
    shard.run(shard.commands.restore_orphans(0, list(map(LostTask, homeless))))
    assert shard.whole() == State(delayed={"a": LATER}, tasks={"a": NEXT}, alarm=1, stats={"adopted": 1})


def test_a_task_with_a_follow_up_stays_in_its_shard_until_it_has_ended(shard: Shard) -> None:
    before = shard.seed(State(retry={"a": LATER}, followups={"a": NEXT}))
    batch = shard.run(shard.commands.migrate_out(0, [b"a"], near_ms=1000))
    assert (batch.stay, batch.tasks, shard.whole()) == ([b"a"], [], before)


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
