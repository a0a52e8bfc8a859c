"""All verbs in any order, by several workers, under a clock that goes forward and back, against a dictionary.

After every step the whole state of every shard is what the model says. So no task is lost or in two states, none runs
early, attempts never fall, a stale token changes nothing, and every counter is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import Limits
from delayq.protocol.commands import Commands
from delayq.protocol.envelope import encode
from delayq.protocol.results import INDEXES as INDEX_OF
from delayq.protocol.results import Outcome, Verdict
from delayq.protocol.results import State as In
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.redis.model import MAX_ATTEMPTS, MAX_CRASHES, MAX_DELAY_MS, MAX_LENGTH, Model
from tests.redis.state import NOW, Shard, shard_on, whole
from tests.servers import FLAVOURS

if TYPE_CHECKING:
    from delayq.protocol.commands import Call

    from tests.topologies.kinds import Servers

pytestmark = pytest.mark.each_redis

LEASE_MS = 10_000
NOT_COUNTERS = {"token", "largest", "format"}  # the other fields of stats
IDS = st.sampled_from(["a", "a:1", "ü*", ":"])
# Mostly now: what waits long is seldom claimed, and most of what can go wrong comes after a claim.
DELAYS = st.sampled_from([0, 0, 0, 1, 500])
NTH = st.integers(0, 5)
SHARDS = st.integers(0, 2)
INDEXES = ("tasks", "delayed", "retry", "suspect", "processing", "dlq", "attempts", "dlq_info")


class Queue(RuleBasedStateMachine):
    """One queue, and every lease that was ever given out: most of them are stale."""

    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self.shard, self.commands = shard, shard.commands
        for redis in shard.redises:
            redis.flushdb()
        shard.clock(NOW)
        self.now, self.payload = NOW, 0
        self.models = [Model() for _ in self.commands.shards]
        self.tokens = [0 for _ in self.commands.shards]
        self.given: list[str] = []
        self.forgotten: set[int] = set()  # shards without a last token since their last claim

    def run(self, call: Call[Any]) -> Any:  # noqa: ANN401
        return self.shard.run(call)

    def at(self, task_id: str) -> tuple[int, Model]:
        index = self.commands.shard_of(task_id)
        return index, self.models[index]

    def lease(self, nth: int) -> tuple[str, int, Model]:
        """One of the leases that are held or that were held lately, with its shard."""
        live = [member for member in self.given if self.at(member.rpartition(":")[0])[1].held(member)]
        choice = [*live, *live, *self.given[-2:]] or ["a:1"]
        member = choice[nth % len(choice)]
        return member, *self.at(member.rpartition(":")[0])

    @initialize(ids=st.lists(IDS, unique=True))
    def begin_with_leases(self, ids: list[str]) -> None:
        for task_id in ids:
            self.schedule(task_id, 0, relative=True, if_exists="reject")
        for index in range(len(self.models)):
            self.claim(index, 2)

    # from outside

    @rule(task_id=IDS, delay=DELAYS | st.sampled_from([-5000, MAX_DELAY_MS, MAX_DELAY_MS + 1]), relative=st.booleans(),
          if_exists=st.sampled_from(["reject", "keep", "replace"]))  # fmt: skip
    def schedule(self, task_id: str, delay: int, *, relative: bool, if_exists: str) -> None:
        index, model = self.at(task_id)
        self.payload += 1
        body = encode(self.payload, None, None)[0]
        when = f"+{delay}" if relative and delay >= 0 else str(self.now + delay)
        limits: dict[str, Any] = {"max_length": MAX_LENGTH, "max_delay_ms": MAX_DELAY_MS}
        call = self.commands.schedule(index, [task_id, when, body], if_exists=if_exists, repeated=0, **limits)
        outcome = self.run(call).notes.get(0, Outcome.CREATED)
        assert outcome == model.schedule(self.now, task_id, self.now + delay, body=body, if_exists=if_exists)

    @rule(task_id=IDS)
    def cancel(self, task_id: str) -> None:
        _, model = self.at(task_id)
        assert self.run(self.commands.cancel(task_id)) == model.cancel(task_id)

    @rule(task_id=IDS, delay=DELAYS | st.sampled_from([-5000, MAX_DELAY_MS + 1]))
    def reschedule(self, task_id: str, delay: int) -> None:
        _, model = self.at(task_id)
        answer = self.run(self.commands.reschedule(task_id, str(self.now + delay), max_delay_ms=MAX_DELAY_MS))
        assert answer.outcome == model.reschedule(self.now, task_id, self.now + delay)

    @rule(task_id=IDS)
    def get(self, task_id: str) -> None:
        _, model = self.at(task_id)
        view, life = self.run(self.commands.get(task_id)), model.lives.get(task_id)
        assert (view is None) is (life is None)
        if life:
            token = life.token if life.home == "processing" else None
            at = life.at // 1000 if life.home == "suspect" else abs(life.at)
            assert (INDEX_OF[view.state], view.at_ms, view.token) == (life.home, at, token)
            assert view.body == life.envelope[1:-6]
            assert view.follow_up_due_ms == (int.from_bytes(life.follow_up[-6:], "big") or None)

    @rule(index=SHARDS)
    def counts(self, index: int) -> None:
        model = self.models[index % len(self.models)]
        counts = self.run(self.commands.counts(index % len(self.models), [1000]))
        state = model.state()
        dues = [*state.delayed.values(), *state.retry.values()]
        assert counts.scheduled == sum(due > self.now for due in state.delayed.values())
        assert counts.retrying == sum(due > self.now for due in state.retry.values())
        assert (counts.in_flight, counts.dead) == (len(state.processing), len(state.dlq))
        assert counts.lapsed == sum(expiry <= self.now for expiry in state.processing.values())
        assert counts.suspect == len(state.suspect)
        assert counts.due == sum(due <= self.now for due in dues) + len(state.suspect)
        assert counts.due_within == {1000: sum(self.now < due <= self.now + 1000 for due in dues)}
        dues += [token // 1000 for token in state.suspect.values()]
        assert counts.oldest_due_ms == min(dues, default=None)

    @rule(index=SHARDS, state=st.sampled_from([In.SCHEDULED, In.RETRYING, In.SUSPECT, In.IN_FLIGHT, In.DEAD]))
    def list_(self, index: int, state: In) -> None:
        model = self.models[index % len(self.models)]
        rows = self.run(self.commands.list(index % len(self.models), state, offset=0, limit=100))
        at = {name: life.at for name, life in model.lives.items() if life.home == INDEX_OF[state]}
        scale = 1000 if state is In.SUSPECT else 1
        assert {row.id: row.at_ms for row in rows} == {
            name: abs(score) // scale for name, score in at.items()
        }
        assert [at[row.id] for row in rows] == sorted(at.values())

    # leases

    @rule(index=SHARDS, limit=st.integers(1, 3), most=st.sampled_from([0, 0, 1, 2]))
    def claim(self, index: int, limit: int, most: int = 0) -> None:
        """`most`: spec.limits.maxInFlight of one shard, if there is such a limit."""
        index %= len(self.models)
        model = self.models[index]
        due = model.due(self.now)
        limits = Limits(max_in_flight=most * len(self.models)) if most else None
        limited = Commands(self.commands.queue, shards=len(self.models), limits=limits)
        room = max(0, most - model.in_flight()) if most else limit
        taken = min(limit, room, len(due))
        claimed = self.run(limited.claim(index, limit, LEASE_MS))
        assert [lease.task.id for lease in claimed.leases] == due[:taken]
        assert claimed.held is bool(most and len(due) > taken == room)
        assert claimed.more is (len(due) > taken and not claimed.held)
        assert self.shard.redises[index].llen(self.commands.shards[index].wake) == int(claimed.more)
        for lease in claimed.leases:
            assert lease.task.due_ms == model.lives[lease.task.id].at <= self.now
            assert lease.task.token > self.tokens[index]
            self.tokens[index] = lease.task.token
            assert lease.task.attempt == model.claim(lease.task.id, lease.task.token, self.now + LEASE_MS)
        if claimed.leases:
            self.forgotten.discard(index)
        assert claimed.suspects == len(model.state().suspect)
        self.given += [lease.member.decode() for lease in claimed.leases]

    @rule(index=SHARDS, limit=st.integers(1, 3))
    def isolate(self, index: int, limit: int) -> None:
        index %= len(self.models)
        model = self.models[index]
        ids = model.group(limit, self.now)
        claimed = self.run(self.commands.isolate(index, limit, LEASE_MS))
        assert [lease.task.id for lease in claimed.leases] == ids
        if not ids:
            return
        assert claimed.leases[0].task.token > self.tokens[index]
        self.tokens[index] = claimed.leases[-1].task.token
        attempts = [model.lives[task_id].failures + model.lives[task_id].crashes + 1 for task_id in ids]
        assert [lease.task.attempt for lease in claimed.leases] == attempts
        model.isolate(self.now, ids, claimed.leases[0].task.token, self.now + LEASE_MS)
        assert [lease.task.due_ms for lease in claimed.leases] == [model.lives[each].due for each in ids]
        assert claimed.suspects == len(model.state().suspect)
        self.forgotten.discard(index)
        self.given += [lease.member.decode() for lease in claimed.leases]

    @rule(nth=NTH)
    def extend(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        life = model.held(member)
        assert self.run(self.commands.extend(index, [member.encode()], LEASE_MS)) == (set() if life else {0})
        if life:
            life.at = self.now + LEASE_MS

    @rule(nth=NTH)
    def ack(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        assert self.run(self.commands.ack(index, [member.encode()])) == [model.ack(member)]

    @rule(nth=NTH, delay=DELAYS, charge=st.integers(0, 1), error=st.sampled_from(["", "boom", "1 2 3"]))
    def retry(self, nth: int, delay: int, charge: int, error: str) -> None:
        member, index, model = self.lease(nth)
        call = self.commands.retry(index, [member, delay, charge, error], max_attempts=MAX_ATTEMPTS)
        assert self.run(call) == [model.retry(self.now, member, delay, charge=charge, error=error)]

    @rule(nth=NTH)
    def bury(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        assert self.run(self.commands.bury(index, [member, "never"])) == [
            model.bury(self.now, member, "never")
        ]

    @rule(nth=NTH)
    def release(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        life = model.held(member)
        due = life.due if life else self.now
        assert self.run(self.commands.release(index, [member, due])) == [model.release(member)]

    @rule(nth=NTH)
    def fail_at_once(self, nth: int) -> None:
        """A failure whose retry is due now, and its claim: so that tasks come to their last attempt."""
        self.retry(nth, delay=0, charge=1, error="again")
        for index in range(len(self.models)):
            self.claim(index, 3)

    @rule(index=SHARDS)
    def crash_at_once(self, index: int) -> None:
        """Every lease runs out, is taken back and given out again."""
        self.now += LEASE_MS
        self.shard.clock(self.now)
        self.reclaim(index, 3)
        self.isolate(index, 3)
        self.claim(index, 3)

    # upkeep

    @rule(index=SHARDS)
    def wake(self, index: int) -> None:
        index %= len(self.models)
        model = self.models[index]
        wait = self.run(self.commands.wake(index))
        assert wait.due is bool(model.due(self.now))
        if wait.due:
            assert self.shard.redises[index].llen(self.commands.shards[index].wake) == 1

    @rule(index=SHARDS)
    def lose_hints(self, index: int) -> None:
        index %= len(self.models)
        keys = self.commands.shards[index]
        self.shard.redises[index].delete(keys.wake, keys.alarm)

    @rule(index=SHARDS, limit=st.integers(1, 3))
    def reclaim(self, index: int, limit: int) -> None:
        index %= len(self.models)
        expected = self.models[index].reclaim(self.now, limit)
        assert self.run(self.commands.reclaim(index, max_crashes=MAX_CRASHES, limit=limit)) == expected

    @rule(nth=NTH, verdict=st.sampled_from(Verdict), stale=st.booleans(), locked=st.booleans(),
          wait_ms=st.sampled_from([1, 5000]))  # fmt: skip
    def recover(self, nth: int, verdict: Verdict, *, stale: bool, locked: bool, wait_ms: int) -> None:
        self.recover_one(self.lease(nth)[0], verdict, stale=stale, locked=locked, wait_ms=wait_ms)

    def recover_one(
        self, member: str, verdict: Verdict, *, stale: bool = False, locked: bool, wait_ms: int
    ) -> None:
        """Stale is a verdict on a lease that has been extended since."""
        task_id = member.rpartition(":")[0]
        index, model = self.at(task_id)
        self.run(self.commands.lock(task_id, "me" if locked else "other", 1000, lock="recovery_lock"))
        life = model.held(member)
        expiry_ms = life.at if life else 0
        options: dict[str, str | int] = {
            "expiry_ms": expiry_ms - 1 if stale else expiry_ms,
            "reason": "why",
            "wait_ms": wait_ms,
            "max_crashes": MAX_CRASHES,
            "failed": 0,
        }
        done = self.run(self.commands.recover(index, member.encode(), "me", verdict, **options))
        assert done == model.recover(self.now, member, verdict, stale=stale, locked=locked, wait_ms=wait_ms)
        self.run(self.commands.unlock(task_id, "me" if locked else "other", lock="recovery_lock"))

    @rule(index=SHARDS, verdict=st.sampled_from(Verdict))
    def recover_all(self, index: int, verdict: Verdict) -> None:
        """Every lease runs out and is recovered: those that ran out are the ones that are listed."""
        index %= len(self.models)
        model = self.models[index]
        self.now += LEASE_MS
        self.shard.clock(self.now)
        found = self.run(self.commands.expired(index, offset=0, limit=100)).members
        late = {
            f"{name}:{life.token}"
            for name, life in model.lives.items()
            if life.home == "processing" and abs(life.at) <= self.now
        }
        assert {member.decode() for member in found} == late
        for member in found:
            self.recover_one(member.decode(), verdict, locked=True, wait_ms=5000)

    @rule(index=SHARDS)
    def clamp_leases(self, index: int) -> None:
        index %= len(self.models)
        cursors = self.commands.shards[index].cursors
        self.shard.redises[index].hset(cursors, "clock", self.now + 1)
        found = self.run(self.commands.clamp_leases(index, LEASE_MS))
        assert found == (1, self.models[index].clamp_leases(self.now + LEASE_MS))

    @rule(index=SHARDS, name=st.sampled_from(INDEXES))
    def reconcile(self, index: int, name: str) -> None:
        """Nothing that the verbs do needs mending."""
        found = self.run(self.commands.reconcile(index % len(self.models), name, 0, count=1000))
        assert found.tasks == []

    @rule(task_id=IDS, delay=DELAYS)
    def redrive(self, task_id: str, delay: int) -> None:
        index, model = self.at(task_id)
        assert self.run(self.commands.redrive(index, [task_id, delay])) == model.redrive(
            self.now, task_id, delay
        )

    @rule(task_id=IDS, age=st.sampled_from([-1, 0, 5000]))
    def purge(self, task_id: str, age: int) -> None:
        index, model = self.at(task_id)
        before = self.now - age
        assert self.run(self.commands.purge(index, [task_id], before_ms=before)) == model.purge(
            task_id, before
        )

    # the world

    @rule(step=st.sampled_from([1, 499, LEASE_MS, 60_000]))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.shard.clock(self.now)

    @rule()
    def time_passes_to_the_next_due_time(self) -> None:
        lives = [life for model in self.models for life in model.lives.values()]
        ahead = [life.at for life in lives if life.home != "suspect" and life.at > self.now]
        if ahead:
            self.now = min(ahead)
            self.shard.clock(self.now)

    @rule(step=st.sampled_from([1, 5000, 3_600_000]))
    def the_clock_steps_back(self, step: int) -> None:
        if self.forgotten:
            return
        self.now -= step
        self.shard.clock(self.now)

    @rule()
    def redis_forgets_the_scripts(self) -> None:
        for redis in self.shard.redises:
            redis.script_flush()

    @rule(index=SHARDS)
    def redis_forgets_the_last_token(self, index: int) -> None:
        """Only while its clock is right: with neither, nobody could tell an old token from a new one."""
        index %= len(self.models)
        if self.now * 1000 > self.tokens[index]:
            self.forgotten.add(index)
            self.shard.redises[index].hdel(self.commands.shards[index].stats, "token")

    @invariant()
    def the_whole_state_is_what_the_model_says(self) -> None:
        for keys, model in zip(self.commands.shards, self.models, strict=True):
            found, expected = whole(self.shard.redises[keys.shard], keys), model.state()
            assert found.wake <= 1
            assert found.alarm <= 1
            stats = {name: count for name, count in found.stats.items() if name not in NOT_COUNTERS and count}
            assert found.but(wake=0, alarm=0, stats=stats) == expected

    @invariant()
    def every_task_that_was_ever_taken_is_accounted_for(self) -> None:
        for model in self.models:
            stats = model.stats
            gone = stats["acked"] + stats["completed"] + stats["cancelled"] + stats["purged"]
            assert len(model.lives) + gone <= stats["scheduled"]


@pytest.mark.every_topology
@pytest.mark.every_cluster
@pytest.mark.parametrize("shards", [1, 3])
def test_all_verbs_against_a_dictionary(
    redis_server: Servers, flavour: str, queue_name: str, shards: int
) -> None:
    """The scripts are those of the server alone on every topology, so that fewer examples try the way to them."""
    most = min(settings().max_examples, 50 if flavour in FLAVOURS else 20)
    with shard_on(redis_server, queue_name, shards) as shard:
        machine: Any = lambda: Queue(shard)  # noqa: E731  a class by its looks; it is only ever called
        run_state_machine_as_test(machine, settings=settings(max_examples=most, stateful_step_count=40))
