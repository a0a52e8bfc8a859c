"""All verbs in any order, by several workers, under a clock that goes forward and back, against a dictionary.

After every step the whole state of every shard is what the model says. So no task is lost or in two states, none runs
early, attempts never decrease, a stale token changes nothing, and every counter is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import Finished, Limits
from delayq.errors import DelayQError
from delayq.protocol.commands import START, Commands
from delayq.protocol.envelope import JSON_TYPE, Further, Task, decode, encode, with_fields
from delayq.protocol.results import INDEXES as INDEX_OF
from delayq.protocol.results import (
    Bulk,
    Claimed,
    Counts,
    Failures,
    Outcome,
    Position,
    Selection,
    TaskRow,
    TaskView,
    Ticket,
    Verdict,
)
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

from tests.redis.model import MAX_ATTEMPTS, MAX_CRASHES, MAX_DELAY_MS, MAX_LENGTH, Life, Model, selects
from tests.redis.state import NOW, Shard, history_weight, shard_on, weight, whole
from tests.servers import FLAVOURS, PREFERRED

if TYPE_CHECKING:
    from delayq.protocol.commands import Call

    from tests.topologies.kinds import Servers

pytestmark = pytest.mark.each_redis

LEASE_MS = 10_000
ACCEPTED = {"created", "replaced", "follows", "kept", "repeated"}
NOT_COUNTERS = {"token", "largest", "format", "cancelling"}  # the other fields of stats
IDS = st.sampled_from(["a", "a:1", "[^ü]*?\\", ":"])
# Mostly now: what waits long is seldom claimed, and most failures come after a claim.
DELAYS = st.sampled_from([0, 0, 0, 1, 500])
ERRORS = st.sampled_from(["", "boom", "1 2 3", "@5 two\nlines", "~9:7:1 boom"])
BOUNDS = st.sampled_from([None, (10, 9, 9999), (10, 1, 9999), (10, 9, 400)])
NTH = st.integers(0, 5)
SHARDS = st.integers(0, 2)
INDEXES = (
    "tasks",
    "delayed",
    "retry",
    "suspect",
    "processing",
    "dlq",
    "attempts",
    "dlq_info",
    "parked",
    "tags",
    "cancelling",
)
STATES = st.sampled_from([In.SCHEDULED, In.RETRYING, In.SUSPECT, In.IN_FLIGHT, In.PARKED, In.DEAD])
DEADLINES = st.sampled_from([None, None, 1, 400, 20_000])
TAGS = st.sampled_from(
    ["x", "xy", "x!"]
)  # the index has them in this order: no tag may find those of another
KINDS = st.sampled_from([("", 0), ("push", 1), ("push", 2), ("pus", 1)])
KNOWN = KINDS | st.sampled_from(
    [("", None), ("push", None), ("pus", None)]
)  # without a version: of every one


def when(now: int, delay: int, *, relative: bool) -> str:
    return f"+{delay}" if relative and delay >= 0 else str(now + delay)


class Queue(RuleBasedStateMachine):
    """One queue, and every lease that was ever given out: most of them are stale."""

    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self.shard = shard
        self.memory(full=False)
        for redis in shard.redises:
            redis.flushdb()
        self.now, self.payload = NOW, 0
        self.time_passes(0)
        self.last = (
            "",
            b"",
            False,
            False,
        )  # the last schedule: id, envelope, whether by delay, whether it debounces
        self.given: list[str] = []
        self.forgotten: set[int] = set()  # shards without a last token since their last claim

    def run(self, call: Call[Any]) -> Any:  # noqa: ANN401
        return self.shard.run(call)

    def refused(self, call: Call[Any]) -> Any:  # noqa: ANN401
        """The reply of a call that needs memory; None if it is refused because memory is full."""
        try:
            return self.run(call)
        except DelayQError as error:
            if not self.full or "OOM" not in str(error):
                raise
            return None

    def at(self, task_id: str) -> tuple[int, Model]:
        index = self.commands.shard_of(task_id)
        return index, self.models[index]

    def pick(self, index: int) -> tuple[int, Model]:
        index %= len(self.models)
        return index, self.models[index]

    def lease(self, nth: int) -> tuple[str, int, Model]:
        """One of the leases that are held or that were held lately, with its shard."""
        live = [member for member in self.given if self.at(member.rpartition(":")[0])[1].held(member)]
        choice = [*live, *live, *self.given[-2:]] or ["a:1"]
        member = choice[nth % len(choice)]
        return member, *self.at(member.rpartition(":")[0])

    @initialize(
        shards=st.sampled_from([1, 3]), ids=st.lists(IDS, unique=True), drops=st.booleans(), bounds=BOUNDS
    )
    def begin_with_leases(
        self, shards: int, ids: list[str], *, drops: bool, bounds: tuple[int, int, int] | None
    ) -> None:
        self.drops = drops
        history = bounds and Finished(seconds=bounds[0], count=bounds[1] * shards, bytes=bounds[2] * shards)
        queue = self.shard.commands.queue
        self.commands = Commands(queue, shards=shards, drops_expired=drops, finished=history)
        self.models = [Model(drops=drops, bounds=bounds) for _ in self.commands.shards]
        self.tokens = [0 for _ in self.commands.shards]
        for task_id in ids:
            self.schedule(task_id, 0, relative=True, if_exists="reject", repeated=False)
        for index in range(shards):
            self.claim(index, 2)

    # clients

    @rule(task_id=IDS, delay=DELAYS | st.sampled_from([-5000, MAX_DELAY_MS, MAX_DELAY_MS + 1]), relative=st.booleans(),
          if_exists=st.sampled_from(["reject", "keep", "replace", "debounce"]), repeated=st.booleans(), kind=KINDS,
          deadline_ms=DEADLINES, most=st.sampled_from([1, 400, 5000]),
          tags=st.lists(TAGS, unique=True, max_size=2).map(tuple))  # fmt: skip
    def schedule(  # noqa: PLR0913 -- as drawn
        self,
        task_id: str,
        delay: int,
        *,
        relative: bool,
        if_exists: str,
        repeated: bool,
        kind: tuple[str, int] = ("", 0),
        deadline_ms: int | None = None,
        most: int = 1,
        tags: tuple[str, ...] = (),
    ) -> None:
        """Repeated is the last call once more, as after its reply was lost."""
        if repeated and self.last[0]:
            task_id, body, relative, debounces = self.last
            if debounces or if_exists == "debounce":
                if_exists = "debounce" if debounces else "replace"
        else:
            self.payload += 1
            body = encode(self.payload, None, {"n": str(self.payload)})[0]
            latest_ms = most if if_exists == "debounce" else None
            body = with_fields(body, Further(*kind, deadline_ms, latest_ms, tags))
        self.last = task_id, body, relative, if_exists == "debounce"
        index, model = self.at(task_id)
        flat: list[str | bytes | int] = [task_id, when(self.now, delay, relative=relative), body]
        limits: dict[str, Any] = {"max_length": MAX_LENGTH, "max_delay_ms": MAX_DELAY_MS}
        call = self.commands.schedule(index, flat, if_exists=if_exists, repeated=int(repeated), **limits)
        if stored := self.refused(call):
            outcome = stored.notes.get(0, Outcome.CREATED)
            assert not (self.full and outcome == "created")
            due = self.now + delay
            assert outcome == model.schedule(
                self.now, task_id, due, body=body, if_exists=if_exists, repeated=repeated
            )
            if outcome in ACCEPTED:
                assert stored.due_ms.get(0, max(due, self.now)) == model.stored_due(task_id, outcome)

    @rule(task_id=IDS, running=st.booleans())
    def cancel(self, task_id: str, *, running: bool) -> None:
        _, model = self.at(task_id)
        found = self.run(self.commands.cancel(task_id, running=running))
        assert found == model.cancel(task_id, running=running)

    @rule(task_id=IDS, delay=DELAYS | st.sampled_from([-5000, MAX_DELAY_MS + 1]), relative=st.booleans())
    def reschedule(self, task_id: str, delay: int, *, relative: bool) -> None:
        _, model = self.at(task_id)
        due = when(self.now, delay, relative=relative)
        answer = self.refused(self.commands.reschedule(task_id, due, max_delay_ms=MAX_DELAY_MS))
        if answer:
            assert answer.outcome == model.reschedule(self.now, task_id, self.now + delay)

    @rule(index=SHARDS, action=st.sampled_from(["count", "list", "cancel"]), tag=TAGS | st.none(),
          kind=st.sampled_from([None, None, "push"]), start=st.sampled_from([None, 0, 1]),
          end=st.sampled_from([None, 1, 500]), count=st.sampled_from([1, 100]))  # fmt: skip
    def bulk(  # noqa: PLR0917 -- as drawn
        self,
        index: int,
        action: Any,  # noqa: ANN401
        tag: str | None,
        kind: str | None,
        start: int | None,
        end: int | None,
        count: int,
    ) -> None:
        index, model = self.pick(index)
        bounds = (each if each is None else self.now + each for each in (start, end))
        chosen, found, listed = Selection(tag, kind, *bounds), Bulk(), list[tuple[str, int]]()
        cursor: bytes | None = None
        while cursor is None or cursor:
            page = self.run(self.commands.bulk(index, action, chosen, cursor or b"", count=count))
            cursor, listed = page.cursor, listed + page.listed
            found = Bulk(*map(sum, zip(found, page.found, strict=True)))
        assert (found, set(listed), len(listed)) == (*model.bulk(action, chosen), len(set(listed)))

    @rule(task_id=IDS)
    def get(self, task_id: str) -> None:
        _, model = self.at(task_id)
        life = model.lives.get(task_id)
        view = self.run(self.commands.get(task_id))
        done = model.remembered(self.now, task_id)
        if not life and done:
            attempts, late, due, _ = map(int, done[1].split())
            assert view == TaskView(
                *(task_id, In.DONE, done[0], due, b"", "", {}, Failures()),
                attempts=attempts,
                late_ms=late,
            )
            return
        if not life:
            assert view is None
            return
        payload = int(decode(life.envelope).body)
        assert view == TaskView(
            *(task_id, self.state(life), self.shown(life), int.from_bytes(life.envelope[-6:], "big")),
            *(b"%d" % payload, JSON_TYPE, {"n": str(payload)}, life.failed),
            token=life.token if life.home == "processing" else None,
            follow_up_due_ms=int.from_bytes(life.follow_up[-6:], "big") or None,
            kind=life.kind[0],
            kind_version=life.kind[1],
            deadline_ms=life.deadline_ms,
            tags=decode(life.envelope).further.tags,
            cancelling=life.cancelling,
        )

    @staticmethod
    def state(life: Life) -> In:
        return next(state for state, index in INDEX_OF.items() if index == life.home)

    @staticmethod
    def shown(life: Life) -> int:
        """The time that a client sees: of a suspect that of its run, of a deferred lease that until which it waits."""
        return life.at // 1000 if life.home == "suspect" else abs(life.at)

    @rule(index=SHARDS)
    def counts(self, index: int) -> None:
        index, model = self.pick(index)
        state, now, instants = model.state(), self.now, [self.now - 1, self.now + 500]
        dues = [*state.delayed.values(), *state.retry.values()]
        ahead = [due for due in dues if due > now]
        waits = dues + [token // 1000 for token in state.suspect.values()]
        found = self.run(self.commands.counts(index, [1000], instants))
        assert found == Counts(
            now_ms=now,
            scheduled=sum(due > now for due in state.delayed.values()),
            retrying=sum(due > now for due in state.retry.values()),
            due=len(dues) - len(ahead) + len(state.suspect),
            in_flight=len(state.processing),
            dead=len(state.dlq),
            oldest_due_ms=min(waits, default=None),
            next_due_ms=min(ahead, default=None),
            due_within={1000: sum(due <= now + 1000 for due in ahead)},
            due_by={instants[0]: 0, instants[1]: sum(due <= instants[1] for due in ahead)},
            stats=found.stats,
            lapsed=sum(expiry <= now for expiry in state.processing.values()),
            bytes=weight(state.envelopes),
            history_bytes=history_weight(state.finished_info),
            format=found.format,
            suspect=len(state.suspect),
            parked=len(state.parked),
        )
        assert found.waiting == len(dues) + len(state.suspect)
        assert found.late_ms == (max(0, now - min(waits)) if found.due else 0)
        assert {name: count for name, count in found.stats.items() if count} == state.stats

    @rule(index=SHARDS, state=STATES, skipped=st.integers(0, 2), limit=st.sampled_from([1, 100]),
          tag=TAGS | st.none(), kind=st.sampled_from([None, None, "push"]),
          start=st.sampled_from([None, None, 1]))  # fmt: skip
    def list_(  # noqa: PLR0917 -- as drawn
        self,
        index: int,
        state: In,
        skipped: int,
        limit: int,
        tag: str | None,
        kind: str | None,
        start: int | None,
    ) -> None:
        index, model = self.pick(index)
        chosen = Selection(tag, kind, start and self.now + start)
        lives = {
            Position(0 if state is In.PARKED else life.at, life.member(name).encode()): (name, life)
            for name, life in model.lives.items()
            if self.state(life) is state
        }
        places = sorted(lives)
        after = places[skipped - 1] if 0 < skipped <= len(places) else START
        looked = [at for at in places if at > after][:limit]
        found = self.run(self.commands.list(index, state, after=after, limit=limit, chosen=chosen))
        assert list(found.rows.items()) == [
            (at, TaskRow(name, state, self.shown(life), len(life.envelope), life.failed, *life.kind))
            for at, (name, life) in ((at, lives[at]) for at in looked)
            if selects(chosen, life.envelope, life.waits_until)
        ]
        assert found.after == (looked[-1] if len(looked) == limit else None)

    # leases

    @rule(index=SHARDS, limit=st.integers(1, 3), most=st.sampled_from([0, 0, 1, 2]), lost=st.booleans())
    def claim(self, index: int, limit: int, most: int = 0, *, lost: bool = False) -> None:
        """`most`: spec.limits.maxInFlight of one shard, if there is such a limit. `lost`: its reply does not arrive."""
        index, model = self.pick(index)
        due = model.due(self.now)
        limits = Limits(max_in_flight=most * len(self.models)) if most else None
        limited = Commands(
            self.commands.queue, shards=len(self.models), limits=limits, drops_expired=self.drops
        )
        room = max(0, most - model.in_flight()) if most else limit
        ids = due[: min(limit, room)]
        claimed = self.run(limited.claim(index, limit, LEASE_MS, ticket=self.ticket()))
        late = [task_id for task_id in ids if model.lives[task_id].missed(self.now)]
        assert claimed.held is bool(most and len(due) > len(ids) == room and not late)
        assert claimed.more is (len(due) > len(ids) and not claimed.held)
        for task_id in late:
            model.expires(self.now, task_id)
        follows = any(task_id in model.due(self.now) for task_id in late)
        woken = self.shard.redises[index].llen(self.commands.shards[index].wake)
        assert woken == int(claimed.more or follows)
        ids = [task_id for task_id in ids if task_id not in late]
        dues = [model.lives[task_id].at for task_id in ids]
        for nth, task_id in enumerate(ids):
            model.claim(task_id, claimed.leases[nth].task.token, self.now + LEASE_MS)
        self.taken(index, claimed, ids, dues, lost=lost)

    def ticket(self) -> Ticket:
        self.payload += 1
        return Ticket("me", self.payload, self.now)

    def taken(self, index: int, claimed: Claimed, ids: list[str], dues: list[int], *, lost: bool) -> None:
        """A claim brought these tasks, which the model has leased already. If its reply is lost, they go back."""
        model = self.models[index]
        for lease, task_id, due in zip(claimed.leases, ids, dues, strict=True):
            life, task = model.lives[task_id], lease.task
            assert task.token > self.tokens[index]
            self.tokens[index] = task.token
            self.same(task, task_id, life)
            assert (task.due_ms, lease.failures) == (due, life.failures)
            assert task.due_ms <= self.now
        if ids:
            self.forgotten.discard(index)
        assert claimed.suspects == len(model.state().suspect)
        members = [lease.member.decode() for lease in claimed.leases]
        self.given += members
        if lost:
            assert self.run(self.commands.unclaim(index, "me", self.payload, LEASE_MS)) == len(members)
            for member, task_id in zip(members, ids, strict=True):
                model.release(member, min(self.now, model.lives[task_id].kept_due))

    def same(self, task: Task, task_id: str, life: Life) -> None:
        """A handler, or a check, is given all of the task."""
        payload = int(decode(life.envelope).body)
        attempt = life.failures + life.crashes + 1
        assert (task.id, task.queue, task.attempt) == (task_id, self.commands.queue, attempt)
        assert (task.token, task.payload, task.headers) == (life.token, payload, {"n": str(payload)})
        assert task.deadline_ms == life.deadline_ms
        assert task.scheduled_ms == int.from_bytes(life.envelope[-6:], "big")

    @rule(index=SHARDS, limit=st.integers(1, 3), lost=st.booleans())
    def isolate(self, index: int, limit: int, *, lost: bool = False) -> None:
        index, model = self.pick(index)
        ids = model.group(limit, self.now)
        claimed = self.run(self.commands.isolate(index, limit, LEASE_MS, ticket=self.ticket()))
        if ids:
            model.isolate(self.now, ids, claimed.leases[0].task.token, self.now + LEASE_MS)
        self.taken(index, claimed, ids, [model.lives[task_id].due for task_id in ids], lost=lost)

    @rule(nth=NTH)
    def extend(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        life = model.held(member)
        found = self.run(self.commands.extend(index, [member.encode()], LEASE_MS))
        assert found == (set() if life else {0}, {0} if life and life.cancelling else set())
        if life:
            life.at = self.now + LEASE_MS

    @rule(nth=NTH)
    def ack(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        life = model.held(member) or Life(b"", "", 0)
        run = (life.failures + life.crashes + 1, life.token, life.due, 0)
        task = Task(member.rpartition(":")[0], self.commands.queue, *run, b"", JSON_TYPE, {})
        tasks = [task] if model.bounds else []
        found = self.run(self.commands.ack(index, [member.encode()], tasks))
        assert found == [model.ack(self.now, member)]

    @rule(nth=NTH, step=st.sampled_from([0, 9_999, 10_000]))
    def finish_and_keep(self, nth: int, step: int) -> None:
        """A task that is done is stored again with `keep` only when its entry is too old, or was trimmed."""
        self.claim(nth, 3)
        task_id = self.lease(nth)[0].rpartition(":")[0]
        self.ack(nth)
        self.time_passes(step)
        self.get(task_id)
        self.schedule(task_id, 500, relative=True, if_exists="keep", repeated=False)

    @rule(index=SHARDS, limit=st.sampled_from([1, 100]))
    def trim_finished(self, index: int, limit: int) -> None:
        index, model = self.pick(index)
        assert self.run(self.commands.trim_finished(index, limit=limit)) == model.trim(self.now, limit=limit)

    @rule(nth=NTH, delay=DELAYS, charge=st.integers(0, 1), error=ERRORS)
    def retry(self, nth: int, delay: int, charge: int, error: str) -> None:
        member, index, model = self.lease(nth)
        call = self.commands.retry(index, [member, delay, charge, error], max_attempts=MAX_ATTEMPTS)
        assert self.run(call) == [model.retry(self.now, member, delay, charge=charge, error=error)]

    @rule(nth=NTH)
    def bury(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        outcome = self.run(self.commands.bury(index, [member, "never"]))
        assert outcome == [model.bury(self.now, member, "never")]

    @rule(nth=NTH)
    def release(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        life = model.held(member)
        due = life.due if life else self.now
        assert self.run(self.commands.release(index, [member, due])) == [model.release(member)]

    @rule(nth=NTH)
    def end_cancelled(self, nth: int) -> None:
        """Mostly of a run that was to be cancelled; else as after a fail-over that lost this."""
        member, index, model = self.lease(nth)
        self.cancel(member.rpartition(":")[0], running=nth > 0)
        assert self.run(self.commands.end_cancelled(index, [member.encode()])) == [
            model.end_cancelled(member)
        ]

    @rule(nth=NTH)
    def park(self, nth: int) -> None:
        member, index, model = self.lease(nth)
        assert self.run(self.commands.park(index, [member, ""])) == [model.park(member)]

    @rule(index=SHARDS, kinds=st.lists(KNOWN, unique=True) | st.none(), limit=st.sampled_from([1, 100]))
    def unpark(self, index: int, kinds: list[tuple[str, int | None]] | None, limit: int) -> None:
        index, model = self.pick(index)
        assert self.run(self.commands.unpark(index, kinds, limit=limit)) == model.unpark(kinds, limit)

    @rule(nth=NTH, times=st.integers(1, 3))
    def fail_at_once(self, nth: int, times: int) -> None:
        """Failures of one task that is due again at once: so that tasks come to their last attempt."""
        task_id = self.lease(nth)[0].rpartition(":")[0]
        index, model = self.at(task_id)
        for _ in range(times):
            life = model.lives.get(task_id)
            if life and life.home == "processing":
                call = self.commands.retry(
                    index, [f"{task_id}:{life.token}", 0, 1, "no"], max_attempts=MAX_ATTEMPTS
                )
                expected = model.retry(self.now, f"{task_id}:{life.token}", 0, charge=1, error="no")
                assert self.run(call) == [expected]
            self.claim(index, 3)

    @rule(index=SHARDS, times=st.integers(1, 3))
    def crash_at_once(self, index: int, times: int) -> None:
        """Every lease expires, is reclaimed and given out again: so that suspects come to run alone."""
        for _ in range(times):
            self.time_passes(LEASE_MS)
            self.reclaim(index, 3)
            self.isolate(index, 3)
            self.claim(index, 3)

    @rule(index=SHARDS, beyond=st.integers(0, 1), scans=st.booleans())
    def the_next_deadline_comes(self, index: int, beyond: int, *, scans: bool) -> None:
        """To the last ms in which a task may be claimed, or to the next one."""
        lasts = [
            int.from_bytes(life.envelope[-6:], "big") + life.deadline_ms + beyond
            for model in self.models
            for life in model.lives.values()
            if life.deadline_ms is not None and life.home != "dlq"
        ]
        ahead = [last for last in lasts if last > self.now]
        if ahead:
            self.time_passes(min(ahead) - self.now)
        if scans:
            self.expire(index)
        self.claim(index, 3)

    # upkeep

    @rule(index=SHARDS)
    def wake(self, index: int) -> None:
        index, model = self.pick(index)
        wait = self.run(self.commands.wake(index))
        assert wait.due is bool(model.due(self.now))
        if wait.due:
            assert self.shard.redises[index].llen(self.commands.shards[index].wake) == 1

    @rule(index=SHARDS)
    def expire(self, index: int) -> None:
        index, model = self.pick(index)
        keys = self.commands.shards[index]
        entries: Any = self.shard.redises[index].zrangebyscore(keys.deadlines, "-inf", self.now)
        looked_at = [task_id.decode() for task_id in entries]
        found = self.run(self.commands.expire(index))
        assert found == (model.expire(self.now, looked_at), len(looked_at))
        assert not self.shard.redises[index].zcount(keys.deadlines, "-inf", self.now)

    @rule(index=SHARDS)
    def lose_hints(self, index: int) -> None:
        keys = self.commands.shards[self.pick(index)[0]]
        self.shard.redises[keys.shard].delete(keys.wake, keys.alarm)

    @rule(index=SHARDS, limit=st.integers(1, 3))
    def reclaim(self, index: int, limit: int) -> None:
        index, model = self.pick(index)
        expected = model.reclaim(self.now, limit)
        assert self.run(self.commands.reclaim(index, max_crashes=MAX_CRASHES, limit=limit)) == expected

    @rule(nth=NTH, verdict=st.sampled_from(Verdict), stale=st.booleans(), locked=st.booleans(),
          wait_ms=st.sampled_from([1, 5000]), failed=st.integers(0, 1))  # fmt: skip
    def recover(
        self, nth: int, verdict: Verdict, *, stale: bool, locked: bool, wait_ms: int, failed: int
    ) -> None:
        self.recover_one(
            self.lease(nth)[0], verdict, stale=stale, locked=locked, wait_ms=wait_ms, failed=failed
        )

    def recover_one(self, member: str, verdict: Verdict, *, stale: bool = False, **case: Any) -> None:  # noqa: ANN401
        """A stale verdict is about a lease that has been extended since. The recovery lock goes with the verdict."""
        task_id = member.rpartition(":")[0]
        index, model = self.at(task_id)
        life = model.held(member)
        examined = self.run(self.commands.examine(index, member.encode()))
        assert bool(examined) is (life is not None and abs(life.at) <= self.now)
        if examined and life:
            assert examined.expiry_ms == life.at
            self.same(examined.task, task_id, life)
        owner = "me" if case["locked"] else "other"
        assert self.run(self.commands.lock(task_id, owner, 1000, lock="recovery_lock")) == 0
        expiry_ms = (life.at if life else 0) - stale
        options: dict[str, str | int] = {"reason": "why", "max_crashes": MAX_CRASHES, "expiry_ms": expiry_ms}
        options |= {name: case[name] for name in ("wait_ms", "failed")}
        done = self.run(self.commands.recover(index, member.encode(), "me", verdict, **options))
        assert done == model.recover(self.now, member, verdict, stale=stale, **case)
        assert self.run(self.commands.unlock(task_id, owner, lock="recovery_lock")) is not case["locked"]

    @rule(index=SHARDS, verdict=st.sampled_from(Verdict), stale=st.booleans(), locked=st.booleans(),
          failed=st.integers(0, 1))  # fmt: skip
    def recover_all(self, index: int, verdict: Verdict, *, stale: bool, locked: bool, failed: int) -> None:
        """Every lease expires and is recovered: the expired ones are those that are listed."""
        index, model = self.pick(index)
        self.time_passes(LEASE_MS)
        found = self.run(self.commands.expired(index, offset=0, limit=100)).members
        late = {
            f"{name}:{life.token}"
            for name, life in model.lives.items()
            if life.home == "processing" and abs(life.at) <= self.now
        }
        assert {member.decode() for member in found} == late
        for member in found:
            self.recover_one(
                member.decode(), verdict, stale=stale, locked=locked, wait_ms=5000, failed=failed
            )

    @rule(index=SHARDS)
    def clamp_leases(self, index: int) -> None:
        index, model = self.pick(index)
        if not self.full:
            self.shard.redises[index].hset(self.commands.shards[index].cursors, "clock", self.now + 1)
            found = self.run(self.commands.clamp_leases(index, LEASE_MS))
            assert found == (1, model.clamp_leases(self.now + LEASE_MS))

    @rule(index=SHARDS, name=st.sampled_from(INDEXES))
    def reconcile(self, index: int, name: str) -> None:
        """No verb leaves anything to repair."""
        index, model = self.pick(index)
        found = self.refused(self.commands.reconcile(index, name, 0, count=1000))
        assert not found or found.tasks == []
        if found and name == "tags":
            keys = self.commands.shards[index]
            assert set(whole(self.shard.redises[index], keys, transaction=False).tags) == model.tags()

    @rule(task_id=IDS, delay=DELAYS)
    def redrive(self, task_id: str, delay: int) -> None:
        index, model = self.at(task_id)
        found = self.run(self.commands.redrive(index, [task_id, delay]))
        assert found == model.redrive(self.now, task_id, delay)

    @rule(task_id=IDS, age=st.sampled_from([-1, 0, 5000]))
    def purge(self, task_id: str, age: int) -> None:
        index, model = self.at(task_id)
        found = self.run(self.commands.purge(index, [task_id], before_ms=self.now - age))
        assert found == model.purge(task_id, self.now - age)

    # the world

    @rule(full=st.sampled_from([True, False, False]))
    def memory(self, *, full: bool) -> None:
        """With full memory no task is stored or rescheduled, and every other verb goes on."""
        self.full = full
        for redis in self.shard.redises:
            redis.config_set("maxmemory", int(full))

    @rule(step=st.sampled_from([1, 499, LEASE_MS, 60_000]))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.shard.clock(self.now)

    @rule()
    def time_passes_to_the_next_due_time(self) -> None:
        lives = [life for model in self.models for life in model.lives.values()]
        ahead = [life.at for life in lives if life.home not in ("suspect", "parked") and life.at > self.now]
        if ahead:
            self.time_passes(min(ahead) - self.now)

    @rule(step=st.sampled_from([1, 5000, 3_600_000]))
    def the_clock_steps_back(self, step: int) -> None:
        if not self.forgotten:
            self.time_passes(-step)

    @rule()
    def redis_forgets_the_scripts(self) -> None:
        for redis in self.shard.redises:
            redis.script_flush()

    @rule(index=SHARDS)
    def redis_forgets_the_last_token(self, index: int) -> None:
        """Only while its clock is right: with neither, nothing tells an old token from a new one."""
        index, _ = self.pick(index)
        if self.now * 1000 > self.tokens[index]:
            self.forgotten.add(index)
            self.shard.redises[index].hdel(self.commands.shards[index].stats, "token")

    def teardown(self) -> None:
        self.memory(full=False)

    @invariant()
    def the_whole_state_is_what_the_model_says(self) -> None:
        for keys, model in zip(self.commands.shards, self.models, strict=True):
            found = whole(self.shard.redises[keys.shard], keys, transaction=False)
            assert found.wake <= 1
            assert found.alarm <= 1
            stats = {name: count for name, count in found.stats.items() if name not in NOT_COUNTERS and count}
            assert found.but(wake=0, alarm=0, stats=stats, deadlines={}, tags={}) == model.state()
            assert model.tags() <= set(found.tags)
            for task_id, life in model.lives.items():  # every deadline is looked at in time
                if life.deadline_ms is not None and life.home != "dlq":
                    last = int.from_bytes(life.envelope[-6:], "big") + life.deadline_ms
                    assert found.deadlines[task_id] <= max(last + 1, model.looks.get(task_id, 0))

    @invariant()
    def every_task_that_was_ever_taken_is_accounted_for(self) -> None:
        for model in self.models:
            stats = model.stats
            gone = (
                stats["acked"] + stats["completed"] + stats["cancelled"] + stats["purged"] + stats["dropped"]
            )
            assert len(model.lives) + gone <= stats["scheduled"]


@pytest.mark.every_topology
@pytest.mark.every_cluster
def test_all_verbs_against_a_dictionary(redis_server: Servers, flavour: str, queue_name: str) -> None:
    """Each topology runs the scripts of one of the servers: fewer examples test how calls get there."""
    most = min(settings().max_examples, 80 if flavour == PREFERRED else 40 if flavour in FLAVOURS else 15)
    with shard_on(redis_server, queue_name, 3) as shard:
        machine: Any = lambda: Queue(shard)  # noqa: E731  a class by its looks; it is only ever called
        run_state_machine_as_test(machine, settings=settings(max_examples=most, stateful_step_count=40))
