"""Recovery: the check is called once for each expired lease, and its verdict is carried out."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from delayq.connection import Address
from delayq.contract.files import secret_path
from delayq.errors import GuardBusy
from delayq.handlers import signature
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import Recovered, Verdict
from delayq.protocol.shard_map import ShardMap
from delayq.reaper.reaper import Reaper
from delayq.recovery import checks
from delayq.recovery import recovery as recovery_module
from delayq.recovery.recovery import Recovery
from delayq.scanner.leader_election import LeaderElection
from delayq.scanner.scanner import Scanner
from delayq.service.counters import ProcessCounters
from delayq.service.loop import Loop
from delayq.service.shard_groups import ShardGroup

from tests.redis.recovering import EXPIRED, Asked, document, recovering, recovery_of, until
from tests.redis.state import NOW, Shard, State, envelope, seed, shard_on, weight
from tests.unit.handlers.receivers import Receiver

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.protocol.envelope import Task
    from delayq.recovery.checks import Check

    from tests.topologies.kinds import Servers

pytestmark = pytest.mark.slow

LOCK_MS = 15_000  # timeoutSeconds of 5 by default, as long for an answer of Redis, and the margin


def leases(count: int) -> dict[str, int]:
    return {f"t{n}:{n + 1}": EXPIRED - n for n in range(count)}


async def settled(recovery: Recovery, count: int) -> None:
    await until(lambda: sum(recovery.done.values()) >= count)


def python(callable_: str, tmp_path: Path) -> Check:
    """The check of a document."""
    queue = document({"python": {"callable": f"{__name__}:{callable_}"}})
    return built(queue, tmp_path)


def built(queue: DelayQueue, secrets_dir: Path) -> Check:
    found = checks.build(queue, Address.from_url("redis://unused"), secrets_dir=secrets_dir)
    assert found is not None
    return found


async def books(task: Task) -> Verdict:
    return Verdict(task.payload["verdict"])


def books_in_a_thread(task: Task) -> tuple[str, str]:
    return task.payload["verdict"], f"read by {threading.current_thread().name}"


@pytest.mark.parametrize("callable_", ["books", "books_in_a_thread"])
async def test_every_verdict_of_a_python_function_is_carried_out(
    shard: Shard, tmp_path: Path, callable_: str
) -> None:
    kept = {verdict.value: envelope(NOW, {"verdict": verdict.value}) for verdict in Verdict}
    before = shard.seed(State(processing={f"{each.value}:7": EXPIRED for each in Verdict}, tasks=kept))
    async with recovering(shard, python(callable_, tmp_path), retryAfterSeconds=60) as recovery:
        await settled(recovery, 4)
    why = "the check said so" if callable_ == "books" else "read by delayq-handler"
    assert shard.whole() == before.without(
        "complete",
        processing={"wait:7": -(NOW + 60_000)},
        suspect={"requeue": 7},
        attempts={"requeue": "0 1 "},
        dlq={"bury": NOW},
        dlq_info={"bury": f"0 1 recovered {why}"},
        wake=1,
        stats={"completed": 1, "reclaimed": 1, "buried": 1, "waited": 1},
    )


async def test_a_service_gets_the_request_of_its_handler_with_one_more_header(
    shard: Shard, tmp_path: Path
) -> None:
    secret = secret_path(tmp_path, "keys", "key")
    secret.parent.mkdir(parents=True)
    secret.write_text("abc")
    before = shard.seed(State(processing={"a:7": EXPIRED}, tasks={"a": envelope(NOW, {"order": 7})}))
    async with Receiver.listening() as receiver:
        said = {"verdict": "bury", "reason": "refunded\ntwice"}
        receiver.answers = [web.json_response(said)]
        spec = {"url": receiver.url, "signingSecretRef": {"name": "keys", "key": "key"}}
        queue = document({"python": None, "http": spec})
        check = built(queue, tmp_path)
        await check.start()
        async with recovering(shard, check) as recovery:
            await settled(recovery, 1)
        await check.close()
        [headers], [body] = receiver.headers, receiver.bodies
    signature.verify(headers, body, target="/cancel", secrets=[b"abc"])
    assert json.loads(body) == {"order": 7}
    assert (headers["Delayq-Check"], headers["Delayq-Task-Id"], headers["Delayq-Token"]) == ("1", "a", "7")
    assert shard.whole() == before.but(
        processing={},
        dlq={"a": NOW},
        dlq_info={"a": "0 1 recovered refunded\ntwice"},
        stats={"buried": 1},
    )


async def fails(_task: Task) -> str:
    raise LookupError("no such order")


async def exits(_task: Task) -> str:
    raise SystemExit(3)


async def cancels(_task: Task) -> str:
    raise asyncio.CancelledError


def says_nothing(_task: Task) -> None:
    pass


def says_too_much(_task: Task) -> tuple[str, str, str]:
    return "wait", "for", "me"


@pytest.mark.parametrize(
    ("callable_", "on_failure", "stats", "why"),
    [
        ("fails", "Bury", "buried", "LookupError: no such order (tests.redis.test_recovery:fails line"),
        ("exits", "Wait", "waited", "SystemExit: 3"),
        ("cancels", "Requeue", "reclaimed", "CancelledError"),
        (
            "says_nothing",
            "Complete",
            "completed",
            "expected one of requeue, complete, bury, wait as the verdict",
        ),
        ("says_too_much", "Bury", "buried", "got ('wait', 'for', 'me')"),
    ],
)
async def test_when_the_check_fails_the_document_decides_and_the_log_says_why(
    shard: Shard,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    callable_: str,
    on_failure: str,
    stats: str,
    why: str,
) -> None:
    shard.seed(State(processing={"a:7": EXPIRED}))
    async with recovering(shard, python(callable_, tmp_path), onFailure=on_failure) as recovery:
        await settled(recovery, 1)
    after = shard.whole()
    assert after.stats == {stats: 1, "checks_failed": 1}
    [record] = [record for record in caplog.records if record.message == "recovered"]
    fields = record.fields  # type: ignore[attr-defined]  # ours, see logs.py
    reason = fields.pop("reason")
    assert fields == {
        "task_id": "a",
        "token": 7,
        "verdict": on_failure.lower(),
        "cause": "failed",
        "outcome": stats,
    }
    assert reason.startswith("the check failed: ")
    assert why in reason
    assert list(after.dlq_info.values()) == ([f"0 1 recovered {reason}"] if on_failure == "Bury" else [])


async def test_tasks_that_no_check_can_read_are_recovered_as_without_a_check(shard: Shard) -> None:
    asked = Asked()
    kept = {"corrupt": b"short", "new": b"\x21{}......."}
    odd = {"orphan:1": EXPIRED, "corrupt:2": EXPIRED, "new:3": EXPIRED, "tokenless": EXPIRED}
    shard.seed(State(processing=odd, tasks=kept))
    shard.redis.hset(shard.keys.tasks, b"\xff", envelope())
    shard.redis.zadd(shard.keys.processing, {b"\xff:4": EXPIRED})
    async with recovering(shard, asked) as recovery:
        await settled(recovery, 5)
    assert asked.tasks == []
    assert recovery.done == {Recovered.ORPHANS: 2, Recovered.RECLAIMED: 3}
    assert {each[0] for each in shard.redis.zscan_iter(shard.keys.suspect)} == {b"corrupt", b"new", b"\xff"}


async def test_two_processes_call_the_check_once_for_each_task(shard: Shard) -> None:
    shard.seed(State(processing=leases(30)))
    one, other = Asked(), Asked(Verdict.REQUEUE)
    async with recovering(shard, one) as first, recovering(shard, other) as second:
        await until(lambda: not shard.redis.zcard(shard.keys.processing))
    assert sorted(one.tasks + other.tasks) == sorted(f"t{n}" for n in range(30))
    stats = shard.whole().stats
    assert stats.get("completed", 0) == len(one.tasks)
    assert stats.get("reclaimed", 0) == len(other.tasks)
    assert set(first.done + second.done) <= {Recovered.COMPLETED, Recovered.RECLAIMED}
    assert shard.redis.keys("*recovery_lock*") == []


async def test_the_check_is_called_for_a_few_tasks_at_a_time(shard: Shard) -> None:
    asked = Asked()
    asked.may_answer.clear()
    shard.seed(State(processing=leases(30)))
    async with recovering(shard, asked) as recovery:
        await until(lambda: asked.at_once == checks.CONCURRENCY)
        asked.may_answer.set()
        await settled(recovery, 30)
    assert asked.most == checks.CONCURRENCY
    assert asked.tasks[:3] == ["t29", "t28", "t27"]


async def test_a_check_that_hangs_is_abandoned_and_delays_no_other_task(shard: Shard) -> None:
    """A coroutine that ignores its cancellation; the other tasks are checked while it hangs."""
    answered: list[str] = []
    enough = asyncio.Event()

    class Deaf(Asked):
        async def ask(self, task: Task) -> checks.Answer:
            while task.id == "t9" and not enough.is_set():
                try:
                    await enough.wait()
                except asyncio.CancelledError:
                    continue
            answered.append(task.id)
            return checks.Answer(Verdict.COMPLETE)

    shard.seed(State(processing=leases(10)))
    async with recovering(shard, Deaf(), timeoutSeconds=1, retryAfterSeconds=7) as recovery:
        await until(lambda: len(answered) == 9)
        assert "t9" not in answered
        await settled(recovery, 10)
        assert recovery.hangs
        assert shard.whole().processing == {"t9:10": -(NOW + 7000)}
        assert shard.whole().stats == {"completed": 9, "waited": 1, "checks_failed": 1}
        enough.set()
        await until(lambda: not recovery.hangs)
    assert shard.whole().processing == {"t9:10": -(NOW + 7000)}, "a late verdict is ignored"


RELEASE = threading.Event()


def hangs(task: Task) -> str:
    if task.id.startswith("hang"):
        RELEASE.wait(60)
    return "complete"


async def test_checks_that_hang_decide_only_on_the_tasks_they_were_called_for(
    shard: Shard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All threads for checks hang, so no check is called for the other tasks.

    These are left alone, the process logs it once, and the step that does not end causes a restart.
    """
    RELEASE.clear()
    asked, others = checks.CONCURRENCY, 92
    shard.seed(State(processing={f"hang{n}:{n + 1}": EXPIRED - 100 for n in range(asked)} | leases(others)))
    before = threading.active_count()
    check = python("hangs", tmp_path)
    recovery = recovery_of(shard, check, timeoutSeconds=1, onFailure="Complete")
    counters = ProcessCounters("reaper", "q")
    loop = Loop(recovery, counters)
    running = asyncio.create_task(loop.run())
    try:
        await until(lambda: loop.stuck_seconds > 2 and counters.loop_errors["recovery"])
        assert threading.active_count() <= before + asked + 1
        assert shard.whole().stats == {"completed": asked, "checks_failed": asked}
        assert len(shard.whole().processing) == others
        assert (counters.loop_errors["recovery"], loop.ready(60)) == (1, False)
        reported = [record for record in caplog.records if record.message == "step_failed"]
        assert [record.fields["loop"] for record in reported] == ["recovery"]  # type: ignore[attr-defined]  # ours
        RELEASE.set()  # given back, the threads serve again
        await until(lambda: not shard.redis.zcard(shard.keys.processing))
        await until(lambda: loop.ready(60))
    finally:
        RELEASE.set()
        loop.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await recovery.close()
        await check.close()
    assert shard.whole().stats == {"completed": asked + others, "checks_failed": asked}


async def test_a_guard_that_is_busy_is_called_again_soon(shard: Shard) -> None:
    """That is no failure: onFailure does not apply."""

    class Busy(Asked):
        async def ask(self, task: Task) -> checks.Answer:
            answer = await super().ask(task)
            if len(self.tasks) == 1:
                raise GuardBusy("all connections are in use")
            return answer

    asked = Busy()
    shard.seed(State(processing={"a:7": EXPIRED}))
    async with recovering(shard, asked, onFailure="Requeue") as recovery:
        await until(lambda: recovery.busy)
        assert shard.redis.keys("*recovery_lock*") == []
        await settled(recovery, 1)
    assert asked.tasks == ["a", "a"]
    assert shard.whole().stats == {"completed": 1}


async def test_a_lease_that_was_extended_and_expired_again_is_checked_again(shard: Shard) -> None:
    """The first verdict does not cover what the worker did in between."""
    shard.seed(State(processing={"a:7": EXPIRED}))
    asked = Asked(Verdict.REQUEUE)
    asked.may_answer.clear()
    async with recovering(shard, asked) as recovery:
        await until(lambda: asked.tasks)
        shard.run(shard.commands.extend(0, [b"a:7"], 1000))
        shard.clock(NOW + 1500)
        asked.verdict = Verdict.COMPLETE
        asked.may_answer.set()
        await settled(recovery, 2)
    assert recovery.done == {Recovered.ALIVE: 1, Recovered.COMPLETED: 1}
    assert asked.tasks == ["a", "a"]


async def test_the_recovery_lock_of_a_dead_process_expires(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:7": EXPIRED}))
    dying, other = Asked(Verdict.REQUEUE), Asked(Verdict.COMPLETE)
    dying.may_answer.clear()
    async with recovering(shard, dying) as dead:
        await until(lambda: dying.tasks)
        async with recovering(shard, other) as alive:
            await until(lambda: alive.busy)
            assert other.tasks == []
            shard.clock(NOW + LOCK_MS + 1)
            await settled(alive, 1)
            after = shard.whole()
            assert after == before.without("a", processing={}, stats={"completed": 1})
            dying.may_answer.set()  # it was only paused, and comes back
            await settled(dead, 1)
    assert dead.done == {Recovered.GONE: 1}
    assert shard.whole() == after


async def test_a_process_that_stops_gives_its_recovery_locks_back(shard: Shard) -> None:
    before = shard.seed(State(processing=leases(3)))
    asked = Asked()
    asked.may_answer.clear()
    async with recovering(shard, asked):
        await until(lambda: len(asked.tasks) == 3)
        assert len(shard.redis.keys("*recovery_lock*")) == 3
    assert shard.redis.keys("*recovery_lock*") == []
    assert shard.whole() == before


async def test_tasks_that_others_recover_are_skipped_and_tried_again_later(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """350 leases are locked by another process; the one behind them has its turn, however soon they are tried again."""
    monkeypatch.setattr(recovery_module, "BUSY_SECONDS", 0.01)  # before all were tried once
    shard.seed(State(processing=leases(350) | {"mine:7": EXPIRED + 1}))
    for n in range(350):
        shard.run(shard.commands.lock(f"t{n}", "other", LOCK_MS, lock="recovery_lock"))
    asked = Asked()
    recovery = recovery_of(shard, asked)
    async with asyncio.timeout(120):
        while not asked.tasks:
            await recovery.step()
            await asyncio.sleep(0.001)
    assert asked.tasks == ["mine"]
    await until(lambda: recovery.done)
    assert recovery.busy
    await recovery.close()
    assert shard.whole().stats == {"completed": 1}


@pytest.mark.one_server
async def test_a_shard_with_many_slow_checks_delays_no_other_shard(shard: Shard) -> None:
    """A free slot goes to the next shard."""
    asked = Asked()
    asked.may_answer.clear()
    two = Shard(
        shard.server, shard.redis, type(shard.commands)(shard.commands.queue, shards=2), shard.connection
    )
    full = leases(50)
    two.seed(State(processing=full))
    other = Shard(shard.server, shard.redis, two.commands, shard.connection, 1)
    other.seed(State(processing={"x:7": EXPIRED}))
    async with recovering(two, asked) as recovery:
        recovery.watch(1, leads=True)
        await until(lambda: asked.at_once == checks.CONCURRENCY)
        asked.may_answer.set()
        await until(lambda: "x" in asked.tasks)
        assert len(asked.tasks) < 50
        await settled(recovery, 51)


@pytest.mark.parametrize("apart", [False, True])
async def test_a_reaper_checks_leases_in_a_dropped_shard(
    redis_server: Servers, queue_name: str, *, apart: bool
) -> None:
    with shard_on(redis_server, queue_name, 3) as shards:
        seed(shards.redises[2], shards.commands.shards[2], State(processing={"a:7": EXPIRED}))
        asked = Asked()
        recovery = recovery_of(shards, asked)
        shards.commands.use_shard_map(ShardMap(9, 1, 1, 1, 3))
        address = Address.from_url(redis_server.url)
        reaper = Reaper(document({}).spec, shards.commands, address, recovery=recovery)
        await reaper.changed()
        await recovery.of(ShardGroup(shards.commands, 0 if apart else None)).step()
        await until(lambda: asked.tasks == ["a"])
        await recovery.close()


def hold(shard: Shard, leases: dict[str, int]) -> None:
    """Add leases and their tasks, and leave all else as it is: scanners are at work."""
    tasks: dict[Any, Any] = {member.rpartition(":")[0]: envelope() for member in leases}
    pipe = shard.redis.pipeline(transaction=True)
    pipe.hset(shard.keys.tasks, mapping=tasks)
    pipe.hsetnx(shard.keys.stats, "format", str(FORMAT))
    pipe.hincrby(shard.keys.stats, "bytes", weight(tasks))
    pipe.zadd(shard.keys.processing, dict(leases))
    pipe.execute()


async def test_of_two_scanners_only_the_leader_calls_the_check(shard: Shard) -> None:
    """And when it stops, the other one does at once."""
    asked, stops, running = [Asked(), Asked()], [asyncio.Event(), asyncio.Event()], []
    recoveries: list[Recovery] = []
    address, queue = Address.from_url(shard.server.url), document({})
    for check, stop, name in zip(asked, stops, ("one", "other"), strict=True):
        recoveries.append(recovery := Recovery(shard.commands, address, queue.spec, check))
        scanner = Scanner(queue.spec, shard.commands, address, owner=name, recovery=recovery)
        running.append(asyncio.create_task(scanner.run(stop, asyncio.Event())))
        # Of two, the first by name leads the first shard, and here it came first, too.
        await until(lambda: recoveries[0].shards == {0})
    await until(lambda: shard.redis.zcard(shard.keys.scanners) == 2)
    hold(shard, leases(30))
    recoveries[0].alarm.ring()
    await until(lambda: not shard.redis.zcard(shard.keys.processing))
    assert [len(check.tasks) for check in asked] == [30, 0]
    stops[0].set()
    await running[0]
    hold(shard, {"late:7": EXPIRED})
    await until(lambda: asked[1].tasks == ["late"])
    stops[1].set()
    await running[1]
    assert shard.whole().stats["completed"] == 31


async def test_a_scanner_sleeps_though_an_expired_lease_waits_for_its_verdict(shard: Shard) -> None:
    """Otherwise it would poll. A task that falls due meanwhile still wakes a worker on time."""
    before = shard.seed(State(processing={"a:7": EXPIRED, "b:8": NOW + 50}))
    address, queue = Address.from_url(shard.server.url), document({})
    recovery = Recovery(shard.commands, address, queue.spec, Asked())
    scanner = Scanner(queue.spec, shard.commands, address, owner="me", recovery=recovery)
    [watching] = scanner.shards
    [leading] = [each for loop in scanner.loops if isinstance(each := loop.service, LeaderElection)]
    await leading.step()
    assert await watching.step() > 1
    assert recovery.shards == {0}
    shard.seed(before.but(delayed={"c": NOW + 200}))
    assert 0.1 < await watching.step() <= 0.2
    stop = asyncio.Event()
    stop.set()
    await scanner.run(stop, asyncio.Event())
    assert shard.whole().processing == before.processing
