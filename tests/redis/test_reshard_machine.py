"""Clients with any shard map, workers, migrators and coordinators, in any order, each stopped between any two calls.

After every call, every task is in exactly one place, and migrating changes nothing of any task. The reply to a client
is true, if no other actor changed its task meanwhile. In the end, new migrators complete the migration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from delayq import NewTask
from delayq.client.dead_letters import DeadLetters
from delayq.client.operations import Operations
from delayq.contract import Limits
from delayq.errors import QueueFull, TaskExists
from delayq.protocol.commands import Commands
from delayq.protocol.results import INDEXES as INDEX_OF
from delayq.protocol.results import Cancelled, LostTask, Outcome
from delayq.protocol.scripts import load
from delayq.protocol.shard_map import ShardMap
from delayq.resharding import migration
from delayq.resharding.coordinator import DesiredShards, ReshardingCoordinator
from delayq.resharding.migration import ShardMigration
from delayq.resharding.migrator import stepped
from delayq.service.per_shard import PerShard
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.redis.paced import Connection, Operating, Stepping
from tests.redis.state import NOW, Shard, shard_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys

    from tests.servers import RedisServer

pytestmark = pytest.mark.slow

MOST = 5
IDS = [f"t{n}" for n in range(6)]
ID, NTH, SHARD = st.sampled_from(IDS), st.integers(0, 7), st.integers(0, MOST - 1)
NEAR_MS, LEASE_MS = 1000, 5000
DELAYS = st.sampled_from([0, 500, 50_000, 50_000, 90_000])
KINDS = ["reject", "keep", "replace", "cancel", "cancel running", "get", "reschedule", "redrive", "purge"]
INDEXES = ("delayed", "retry", "suspect", "processing", "dlq")
MIGRATION = [f"migrate_{verb}" for verb in ("out", "in", "verify", "commit", "retoken", "done")]
READS = {load(name).name for name in ("get", "scan", "list_migrating")}
MIGRATES = {load(name).name for name in ("sync_shard_map", "scan", "list_migrating", *MIGRATION)}


class Place(NamedTuple):
    """All that is stored of a task, except its shard."""

    state: str
    score: int
    envelope: bytes
    counted: bytes | None
    info: bytes | None

    @property
    def migrating(self) -> Place:
        """The same while it migrates: a suspect goes as a task of retry, with the time of its run."""
        return self._replace(state="retry", score=self.score // 1000) if self.state == "suspect" else self


@dataclass(eq=False)
class Actor:
    """A client's operation under way: what it is about, and when it began."""

    operating: Operating
    task_id: str
    kind: str
    began: int
    before: Place | None


class Resharding(RuleBasedStateMachine):
    """One queue of up to five shards."""

    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self.shard, self.queue = shard, shard.commands.queue
        shard.redis.flushdb()
        self.now = NOW
        shard.clock(NOW)
        self.payload, self.calls = 0, 0
        self.actor: object = None
        self.clients = [Commands(self.queue, shards=n) for n in (2, 1, 3)]
        self.worker = Commands(self.queue, shards=MOST)
        self.migrators: list[Stepping] = []
        self.coordinators: list[Stepping] = []
        self.operations: list[Actor] = []
        self.leases: list[tuple[int, bytes]] = []
        self.touched: dict[str, list[tuple[int, object]]] = {task_id: [] for task_id in IDS}
        self.places: dict[str, Place] = {}

    @initialize(before=st.integers(1, MOST), after=st.integers(1, MOST), ids=st.lists(ID, unique=True, min_size=2),
                reported=st.sets(SHARD))  # fmt: skip
    def begin_in_the_middle(self, before: int, after: int, ids: list[str], reported: set[int]) -> None:
        """Tasks are in their old shards, the shard map says that they migrate, and only some shards have it."""
        settled = ShardMap.first(before)
        self.run(self.worker.sync_shard_map(0, settled))
        for task_id in ids:
            self.schedule(0, task_id, 50_000, "reject", lost=False)
        announced = settled.announcing(after, "x:1")
        if announced is None:
            return
        moving_ = announced.next_step()
        assert moving_ is not None
        for shard_map in (announced, moving_):
            for shard in {0, *reported}:
                self.run(self.worker.sync_shard_map(shard, shard_map))
        self.clients[1].use_shard_map(moving_)
        self.migrators += [self.migrator(shard) for shard in range(min(before, 3))]

    # what is there

    def look(self) -> dict[str, Place]:
        """Where every task is, by its id; fails when one is at two places."""
        pipe = self.shard.redis.pipeline(transaction=False)
        every = [self.keys(shard) for shard in range(MOST)]
        for keys in every:
            for name in (*INDEXES, "moving"):
                pipe.zrange(getattr(keys, name), 0, -1, withscores=True)
            for name in ("tasks", "attempts", "dlq_info", "moving_info", "arrived"):
                pipe.hgetall(getattr(keys, name))
        found = pipe.execute()
        rows = [found[at : at + 11] for at in range(0, len(found), 11)]
        places: dict[str, Place] = {}
        for shard, (*zsets, moving_, tasks, attempts, infos, ways, _) in enumerate(rows):
            known = set()
            for index, zset in zip(INDEXES, zsets, strict=True):
                for member, score in zset:
                    raw = member.rpartition(b":")[0] if index == "processing" else member
                    known.add(raw)
                    self.put(
                        places, raw, Place(index, int(score), tasks[raw], attempts.get(raw), infos.get(raw))
                    )
            for raw, token in moving_:
                assert raw not in known, f"{raw!r} is in an index and on its way"
                known.add(raw)
                to, index, score = ways[raw].split(b" ")
                if not self.arrived(rows[int(to)][10], shard, int(token)):
                    place = Place(index.decode(), int(score), tasks[raw], attempts.get(raw), infos.get(raw))
                    self.put(places, raw, place)
            assert known == set(tasks), (
                f"shard {shard}: {known ^ set(tasks)} is in no index, or has no envelope"
            )
        return places

    @staticmethod
    def arrived(receipts: dict[bytes, bytes], shard: int, token: int) -> bool:
        floor = int(receipts.get(b"%d" % shard, 0))
        return token <= floor or b"%d:%d" % (shard, token) in receipts

    @staticmethod
    def put(places: dict[str, Place], raw: bytes, place: Place) -> None:
        assert raw.decode() not in places, f"{raw!r} is at two places: {place}, {places[raw.decode()]}"
        places[raw.decode()] = place

    def keys(self, shard: int) -> Keys:
        return self.worker.keys(shard)

    def run(self, call: Call[Any]) -> Any:  # noqa: ANN401
        """Do one call, and look what it did to every task; a call that only reads does nothing."""
        self.calls += 1
        if call.script.name in READS:
            return self.shard.run(call)
        try:
            return self.shard.run(call)
        finally:
            before, self.places = self.places, self.look()
            for task_id in IDS:
                was, now = before.get(task_id), self.places.get(task_id)
                if was != now:
                    same = was is not None and was.migrating == now
                    assert same or call.script.name not in MIGRATES, f"{call.script.name} changed {task_id}"
                    self.touched[task_id].append((self.calls, self.actor))

    def untouched(self, actor: Actor) -> bool:
        """Whether no other actor changed its task since it began."""
        return not any(at > actor.began and by is not actor for at, by in self.touched[actor.task_id])

    # clients

    def begin(self, client: int, task_id: str, kind: str, *, delay: int = 0) -> Actor:
        commands = self.clients[client % len(self.clients)]
        operations = Operations(commands, Limits())
        self.payload += 1
        new = NewTask(self.payload, delay_ms=delay, task_id=task_id)
        begins: dict[str, Callable[[], Any]] = {
            "reject": lambda: operations.schedule(new, "reject"),
            "keep": lambda: operations.schedule(new, "keep"),
            "replace": lambda: operations.schedule(new, "replace"),
            "cancel": lambda: operations.cancel(task_id),
            "cancel running": lambda: operations.cancel(task_id, running=True),
            "get": lambda: operations.get(task_id),
            "reschedule": lambda: operations.reschedule(task_id, delay, None),
            "redrive": lambda: DeadLetters(operations).redrive([task_id], None, dry_run=False),
            "purge": lambda: DeadLetters(operations).purge([task_id]),
        }
        return Actor(Operating(self.run, begins[kind]()), task_id, kind, self.calls, self.places.get(task_id))

    def advance(self, actor: Actor, *, lost: bool = False) -> None:
        self.actor = actor
        actor.operating.advance(lost=lost)
        self.actor = None

    def judge(self, actor: Actor) -> None:
        """Its reply is true, if no other actor changed the task meanwhile."""
        if not self.untouched(actor):
            return
        result, error, kind = actor.operating.result, actor.operating.error, actor.kind
        index = actor.before.state if actor.before else ""
        if kind in {"reject", "keep", "replace"}:
            self.judge_schedule(kind, index, result, error)
            return
        assert error is None, error
        if kind == "get":
            assert (INDEX_OF[result.state] if result else "") == index
        elif kind.startswith("cancel"):
            runs = {Cancelled.IN_FLIGHT, Cancelled.FOLLOW_UP_CANCELLED}
            reported = {
                "": {Cancelled.NOT_FOUND},
                "dlq": {Cancelled.DEAD},
                "processing": runs if kind == "cancel" else {Cancelled.CANCELLING},
            }
            assert result in reported.get(index, {Cancelled.CANCELLED})
        elif kind == "reschedule":
            told_ = {"": "not_found", "dlq": "dead", "processing": "in_flight"}
            assert result.outcome == told_.get(index, "rescheduled")
        elif kind == "redrive":
            assert result.tasks == (index == "dlq")
        else:
            assert result == (index == "dlq")

    @staticmethod
    def judge_schedule(kind: str, index: str, result: Any, error: Exception | None) -> None:  # noqa: ANN401
        assert not isinstance(error, QueueFull)
        if not index:
            assert error is None, error
            assert result.outcome is Outcome.CREATED
        elif kind == "reject":
            assert isinstance(error, TaskExists), (index, result)
        elif kind == "keep":
            assert result.outcome is Outcome.KEPT
        elif index == "processing":
            assert result.outcome is Outcome.FOLLOWS
        else:
            assert result.outcome is Outcome.REPLACED

    def at_once(self, client: int, task_id: str, kind: str, *, delay: int = 0) -> None:
        actor = self.begin(client, task_id, kind, delay=delay)
        while not actor.operating.done:
            self.advance(actor)
        self.judge(actor)

    @rule(
        client=NTH,
        task_id=ID,
        delay=DELAYS,
        kind=st.sampled_from(["reject", "keep", "replace"]),
        lost=st.booleans(),
    )
    def schedule(self, client: int, task_id: str, delay: int, kind: str, *, lost: bool) -> None:
        """After a lost reply the call is repeated, and its reply says at least that the task exists."""
        if not lost:
            self.at_once(client, task_id, kind, delay=delay)
            return
        actor = self.begin(client, task_id, kind, delay=delay)
        for nth in range(40):
            if actor.operating.done:
                break
            self.advance(actor, lost=nth == 1)
        assert actor.operating.done
        held = isinstance(actor.operating.error, TaskExists)
        assert held or (actor.operating.error is None and task_id in self.places)

    @rule(client=NTH, task_id=ID, delay=DELAYS,
          kind=st.sampled_from(["cancel", "cancel running", "get", "get", "reschedule", "redrive",
                                "purge"]))  # fmt: skip
    def ask(self, client: int, task_id: str, delay: int, kind: str) -> None:
        self.at_once(client, task_id, kind, delay=delay)

    @rule(client=NTH, task_id=ID, delay=DELAYS, kind=st.sampled_from(KINDS))
    def begin_slowly(self, client: int, task_id: str, delay: int, kind: str) -> None:
        """Between its calls, which may be hours apart, everything else happens."""
        if len(self.operations) < 3:
            self.operations.append(self.begin(client, task_id, kind, delay=delay))

    @rule(nth=NTH)
    def go_on_slowly(self, nth: int) -> None:
        if not self.operations:
            return
        actor = self.operations[nth % len(self.operations)]
        if not actor.operating.done:
            self.advance(actor)
        if actor.operating.done:
            self.operations.remove(actor)
            self.judge(actor)

    @rule(client=NTH)
    def a_client_begins_anew(self, client: int) -> None:
        self.clients[client % len(self.clients)] = Commands(self.queue, shards=client % MOST + 1)

    # workers

    @rule(shard=SHARD)
    def claim(self, shard: int) -> None:
        found = self.run(self.worker.claim(shard, 2, LEASE_MS))
        self.leases += [(shard, lease.member) for lease in found.leases]

    @rule(shard=SHARD)
    def isolate(self, shard: int) -> None:
        found = self.run(self.worker.isolate(shard, 2, LEASE_MS))
        self.leases += [(shard, lease.member) for lease in found.leases]

    @rule(nth=NTH, how=st.sampled_from(["ack", "retry", "retry far", "bury", "release"]))
    def settle(self, nth: int, how: str) -> None:
        if not self.leases:
            return
        shard, member = self.leases.pop(nth % len(self.leases))
        commands = self.worker
        self.run(
            {
                "ack": lambda: commands.ack(shard, [member]),
                "retry": lambda: commands.retry(shard, [member, 0, 1, "boom"], max_attempts=3),
                "retry far": lambda: commands.retry(shard, [member, 50_000, 1, "boom"], max_attempts=3),
                "bury": lambda: commands.bury(shard, [member, "never"]),
                "release": lambda: commands.release(shard, [member, self.now]),
            }[how]()
        )

    @rule(shard=SHARD)
    def leases_run_out(self, shard: int) -> None:
        self.pass_time(LEASE_MS)
        self.run(self.worker.reclaim(shard, max_crashes=2))

    @rule(shard=SHARD, index=st.sampled_from(["tasks", *INDEXES]))
    def a_reaper_finds_nothing(self, shard: int, index: str) -> None:
        """There is nothing to repair at any point of a migration."""
        assert self.run(self.worker.reconcile(shard, index, 0, count=100)).tasks == []
        lost = [LostTask(task_id.encode()) for task_id in IDS]
        assert self.run(self.worker.restore_orphans(shard, lost)).ids == []

    @rule(ms=st.sampled_from([1, 1000, 60_000]))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.shard.clock(self.now)

    # migrators, of whom any number are at work, and coordinators

    @rule(shard=SHARD)
    def a_migrator_begins(self, shard: int) -> None:
        if len(self.migrators) < 4:
            self.migrators.append(self.migrator(shard))

    def migrator(self, shard: int) -> Stepping:
        commands = Commands(self.queue, shards=1)
        connection: Any = Connection()
        move = ShardMigration(shard, commands, connection, near_ms=NEAR_MS)

        async def step() -> float:
            reported = await connection.one(commands.sync_shard_map(0))
            if reported.shard_map is not None:
                commands.apply_shard_map(reported.shard_map)
            return await stepped(move, commands, scans=commands.shard_map.moves, refusals=PerShard("move"))

        return Stepping(self.run, step)

    @rule(nth=NTH, times=st.integers(1, 12))
    def migrators_go_on(self, nth: int, times: int) -> None:
        for _ in range(times):
            if self.migrators:
                self.migrators[nth % len(self.migrators)].advance()

    @rule(nth=NTH)
    def a_migrator_crashes(self, nth: int) -> None:
        if self.migrators:
            self.migrators.pop(nth % len(self.migrators)).crash()

    @rule(wanted=st.integers(1, MOST), stamp=st.sampled_from(["-", "u:1", "u:2", "u:3", "v:1"]))
    def a_coordinator_begins(self, wanted: int, stamp: str) -> None:
        if len(self.coordinators) < 3:
            self.coordinators.append(self.coordinator(wanted, stamp))

    def coordinator(self, wanted: int, stamp: str) -> Stepping:
        commands, connection = Commands(self.queue, shards=wanted), Connection()
        service = ReshardingCoordinator(
            *(commands, connection),  # type: ignore[arg-type]
            wish=DesiredShards(wanted, stamp),
            led=lambda: {0},
            announce_seconds=0.0,
        )
        return Stepping(self.run, service.step)

    @rule(nth=NTH, times=st.integers(1, 12))
    def coordinators_go_on(self, nth: int, times: int) -> None:
        for _ in range(times):
            if self.coordinators:
                self.coordinators[nth % len(self.coordinators)].advance()

    @rule(nth=NTH)
    def a_coordinator_crashes(self, nth: int) -> None:
        if self.coordinators:
            self.coordinators.pop(nth % len(self.coordinators)).crash()

    @rule(wanted=st.integers(1, MOST))
    def the_migration_goes_on(self, wanted: int) -> None:
        """Many steps of a migration at once, so that examples complete it and begin another."""
        shard_map = self.shard_map() or ShardMap.first(1)
        asked = shard_map.announcing(wanted, "x:1") if shard_map.settled else shard_map.next_step()
        if asked is not None and not shard_map.moves:
            self.run(self.worker.sync_shard_map(0, asked))
        for shard in range(shard_map.shards_in_use):
            migrator = self.migrator(shard)
            for _ in range(12):
                migrator.whole()
        if shard_map.moves:
            coordinator = self.coordinator(shard_map.target, shard_map.asked)
            for _ in range(3):
                coordinator.whole()

    def shard_map(self) -> ShardMap | None:
        return self.shard.run(self.worker.sync_shard_map(0)).shard_map

    @invariant()
    def a_settled_queue_has_every_task_at_home(self) -> None:
        shard_map = self.shard_map()
        if shard_map is None or not shard_map.settled:
            return
        for shard in range(MOST):
            names: Any = self.shard.redis.hkeys(self.keys(shard).tasks)
            for raw in names:
                assert shard_map.home(raw.decode()) == shard, f"{raw!r} is at {shard} of {shard_map}"

    def teardown(self) -> None:
        """All processes crash; new ones complete the migration."""
        before = dict(self.places)
        self.migrators = [self.migrator(shard) for shard in range(MOST)]
        coordinator = self.coordinator(2, "-")
        for _ in range(100):
            coordinator.whole()
            now = self.shard_map()
            if now is not None and now.settled:
                break
            for migrator in self.migrators:
                migrator.whole()
            self.drain()
        else:
            raise AssertionError(f"never settled: {self.shard_map()}")
        gone = {task_id for task_id, place in before.items() if task_id not in self.places}
        assert gone <= self.acked, gone

    acked: set[str] = frozenset()  # type: ignore[assignment]

    def drain(self) -> None:
        """Tasks that are due or in flight run and end."""
        self.acked = set(self.acked)
        self.pass_time(LEASE_MS)
        for shard in range(MOST):
            taken = self.run(self.worker.reclaim(shard, max_crashes=2))
            self.acked |= {member.rpartition(":")[0] for member, outcome in taken if outcome == "cancelled"}
            for claim in (self.worker.claim, self.worker.isolate, self.worker.isolate):
                for lease in self.run(claim(shard, 9, LEASE_MS)).leases:
                    self.acked.add(lease.task.id)
                    self.run(self.worker.ack(shard, [lease.member]))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEEP_SECONDS", "AGAIN_SECONDS", "PAGE_SECONDS"):
        monkeypatch.setattr(migration, name, 0.0)


def test_nothing_is_lost_or_doubled_by_a_change_of_shards(redis_server: RedisServer, queue_name: str) -> None:
    with shard_on(redis_server, queue_name, 2) as shard:
        machine: Any = lambda: Resharding(shard)  # noqa: E731  a class by its looks; it is only ever called
        run_state_machine_as_test(
            machine, settings=settings(max_examples=min(settings().max_examples, 15), stateful_step_count=40)
        )
