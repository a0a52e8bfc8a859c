"""The model of one task does what the model of a shard does that `tests/redis` plays against Redis."""

from __future__ import annotations

from typing import Any

from delayq.protocol.envelope import Further, encode, with_fields
from hypothesis import given
from hypothesis import strategies as st

from tests.histories import task_model
from tests.histories.envelopes import parsed
from tests.histories.history import Op, Parsed, exactly
from tests.histories.life import NOTHING, ZERO, Life, expired
from tests.redis.model import MAX_ATTEMPTS, MAX_CRASHES, Model

ID, LEASE_MS, DEADLINE_MS = "x", 300, 400
VERBS = (
    *("schedule", "schedule", "claim", "claim", "isolate", "isolate", "reclaim", "reclaim"),
    *("cancel", "reschedule", "redrive", "purge", "expire", "unpark", "count", "cancel_many"),
    *("extend", "ack", "retry", "retry", "bury", "release", "park", "recover", "end_cancelled"),
)


class Pair:
    """Both models, at the same time of Redis' clock."""

    def __init__(self, *, deadline: bool) -> None:
        self.model, self.life, self.now, self.token = Model(), NOTHING, 1_000_000, 0
        self.deadline = DEADLINE_MS if deadline else None

    def play(self, verb: str, at: int, delay: int, choice: int) -> None:
        self.now += at
        answer, args = getattr(self, verb)(delay, choice)
        if answer is not None:
            name = "bulk" if verb == "cancel_many" else "bulk" if verb == "count" else verb
            self.step(name, args, answer)
        self.same()

    def step(self, verb: str, args: dict[str, Any], answer: object) -> None:
        op = Op(0, verb, self.now, self.now, {**args, "now": self.now}, answer)
        found = list(task_model.step(self.life, op))
        assert len(found) == 1, (op, self.life, found)
        self.life = found[0]

    def same(self) -> None:
        """The shard's task is this one."""
        life = self.model.lives.get(ID)
        if life is None:
            assert self.life == NOTHING
            return
        envelope = parsed(life.envelope.decode("latin-1"))
        mine = self.life
        assert (mine.home, mine.body, mine.due) == (life.home, envelope.body, exactly(envelope.due))
        assert (mine.failures, mine.crashes, mine.error) == (life.failures, life.crashes, life.error)
        assert (mine.counted, mine.kept, mine.alone) == (life.counted, exactly(life.kept), life.alone)
        assert (mine.group, mine.size) == (exactly(life.group), life.size)
        assert mine.latest == (None if envelope.latest is None else exactly(envelope.latest))
        assert bool(mine.follow) == bool(life.follow_up)
        assert mine.cancelling == life.cancelling
        if life.home == "dlq":
            assert mine.story == life.story
        if life.home == "processing":
            assert (mine.token, mine.deferred) == (exactly(life.token), life.at < 0)
        if life.home != "parked":
            assert mine.at == exactly(abs(life.at))
        if mine.follow:
            follows = parsed(life.follow_up.decode("latin-1"))
            assert (mine.follow.body, mine.follow.due) == (follows.body, exactly(follows.due))

    # each returns the answer of the shard's model, or None if there was none, and the arguments of this one

    def schedule(self, delay: int, choice: int) -> tuple[Any, dict[str, Any]]:
        mode = ("reject", "keep", "replace", "debounce")[choice % 4]
        wait = 250 if mode == "debounce" else None
        further = Further("k", 1, self.deadline, wait, (ID,))
        raw, repeated = with_fields(encode(choice // 4, None, None)[0], further), choice % 3 == 0
        due = self.now + delay
        answer = self.model.schedule(self.now, ID, due, body=raw, if_exists=mode, repeated=repeated)
        body = parsed(raw.decode("latin-1") + "\0" * 6)
        args = {"if_exists": mode, "repeated": repeated, "when": f"+{delay}", "body": body.body}
        return answer, {**args, "wait": wait, "deadline": self.deadline}

    def cancel(self, _: int, choice: int) -> tuple[Any, dict[str, Any]]:
        running = choice % 2 == 0
        return self.model.cancel(ID, running=running), {"running": running}

    def reschedule(self, delay: int, choice: int) -> tuple[Any, dict[str, Any]]:
        due = self.now + delay - 100 * (choice % 2)
        when = f"+{delay}" if choice % 2 == 0 else f"{due}"
        return self.model.reschedule(self.now, ID, due), {"when": when, "was": None, "due": None}

    def claim(self, *_: int) -> tuple[Any, dict[str, Any]]:
        if ID not in self.model.due(self.now):
            return None, {}
        life = self.model.lives[ID]
        if life.missed(self.now):
            return self.expire()
        envelope, due, entry = parsed(life.envelope.decode("latin-1")), life.at, life.entry
        counted = entry if life.counted else ""
        self.token += 5
        self.model.claim(ID, self.token, self.now + LEASE_MS)
        args = {"lease_ms": LEASE_MS, "limit": 1, "claim": "c", "token": self.token, "entry": counted}
        return "leased", {**args, "due": due, "envelope": envelope}

    def isolate(self, *_: int) -> tuple[Any, dict[str, Any]]:
        before = self.life
        if ID not in self.model.group(1, self.now):
            return self.expire() if before.home == "suspect" else (None, {})
        self.token += 5
        self.model.isolate(self.now, [ID], self.token, self.now + LEASE_MS)
        life = self.model.lives[ID]
        args = {"lease_ms": LEASE_MS, "limit": 1, "claim": "c", "token": self.token, "nth": 0, "size": 1}
        return "leased", {
            **args,
            "envelope": parsed(life.envelope.decode("latin-1")),
            "entry": life.entry,
        }

    def expire(self, *_: int) -> tuple[Any, dict[str, Any]]:
        self.model.expire(self.now, [ID])
        found = expired(self.life, exactly(self.now))
        self.life = self.life if found is None else found
        return None, {}

    def reclaim(self, *_: int) -> tuple[Any, dict[str, Any]]:
        taken = self.model.reclaim(self.now, 1)
        if not taken:
            assert not list(task_model.step(self.life, self._reclaiming(None, None)))
            return None, {}
        [(member, answer)] = taken
        return answer, dict(self._reclaiming(int(member.rpartition(":")[2]), answer).args)

    def _reclaiming(self, token: int | None, answer: str | None) -> Op:
        args = {"token": token, "max_crashes": MAX_CRASHES, "before": self.now, "now": self.now}
        return Op(0, "reclaim", self.now, self.now, args, answer)

    def redrive(self, delay: int, choice: int) -> tuple[Any, dict[str, Any]]:
        delay *= choice % 2
        return self.model.redrive(self.now, ID, delay), {"delay": delay}

    def purge(self, *_: int) -> tuple[Any, dict[str, Any]]:
        return self.model.purge(ID, self.now + 1), {}

    def unpark(self, *_: int) -> tuple[Any, dict[str, Any]]:
        return ("all" if self.model.unpark(None, 9)[0] else "none"), {}

    def count(self, *_: int) -> tuple[Any, dict[str, Any]]:
        return self._bulk("count")

    def cancel_many(self, *_: int) -> tuple[Any, dict[str, Any]]:
        return self._bulk("cancel")

    def _bulk(self, action: str) -> tuple[Any, dict[str, Any]]:
        from delayq.protocol.results import Selection  # noqa: PLC0415

        return self.model.bulk(action, Selection(ID))[0][:4], {"cancels": action == "cancel"}

    # settlements: with the current lease, or with one that was lost

    def _member(self, choice: int) -> tuple[str, dict[str, Any]]:
        token = self.token - 5 * (choice % 5 == 0)
        return f"{ID}:{token}", {"token": token, "known": True}

    def extend(self, _: int, choice: int) -> tuple[Any, dict[str, Any]]:
        member, args = self._member(choice)
        life = self.model.held(member)
        if life:
            life.at = self.now + LEASE_MS
            return "to_cancel" if life.cancelling else "extended", {**args, "lease_ms": LEASE_MS}
        return "lease_lost", {**args, "lease_ms": LEASE_MS}

    def ack(self, _: int, choice: int) -> tuple[Any, dict[str, Any]]:
        member, args = self._member(choice)
        return self.model.ack(self.now, member), args

    def retry(self, delay: int, choice: int) -> tuple[Any, dict[str, Any]]:
        member, args = self._member(choice)
        delay, charge, error = delay * (choice % 2), (choice + 1) % 2, f"e{choice}"
        args |= {"delay": delay, "charge": charge, "error": error, "max_attempts": MAX_ATTEMPTS}
        return self.model.retry(self.now, member, delay, charge=charge, error=error), args

    def bury(self, _: int, choice: int) -> tuple[Any, dict[str, Any]]:
        member, args = self._member(choice)
        return self.model.bury(self.now, member, "never"), {**args, "error": "never"}

    def release(self, _: int, choice: int) -> tuple[Any, dict[str, Any]]:
        member, args = self._member(choice)
        return self.model.release(member, self.now - 7), {**args, "due": self.now - 7}

    def end_cancelled(self, _: int, choice: int) -> tuple[Any, dict[str, Any]]:
        member, args = self._member(choice)
        return self.model.end_cancelled(member), args

    def park(self, _: int, choice: int) -> tuple[Any, dict[str, Any]]:
        member, args = self._member(choice)
        return self.model.park(member), args

    def recover(self, _: int, choice: int) -> tuple[Any, dict[str, Any]]:
        member, args = self._member(choice)
        verdict = ("requeue", "complete", "bury", "wait")[choice % 4]
        life = self.model.held(member)
        expiry, options = life.at if life else 0, {"locked": True, "wait_ms": 200, "failed": 0}
        answer = self.model.recover(self.now, member, verdict, stale=False, **options)  # type: ignore[arg-type]
        args |= {"expiry": expiry, "verdict": verdict, "reason": "why", "wait_ms": 200}
        return answer, {**args, "max_crashes": MAX_CRASHES}


MOVES = st.tuples(
    st.sampled_from(VERBS),
    st.sampled_from([0, 1, 50, 500]),
    st.sampled_from([1, 100, 500]),
    st.integers(0, 11),
)


@given(deadline=st.booleans(), moves=st.lists(MOVES, min_size=8, max_size=60))
def test_one_task_does_what_a_shard_with_one_task_does(
    moves: list[tuple[str, int, int, int]], *, deadline: bool
) -> None:
    pair = Pair(deadline=deadline)
    for move in moves:
        pair.play(*move)


def test_bounds_of_times_allow_what_exact_times_would() -> None:
    """A retry whose time is known by bounds only is due within bounds; what `get` says narrows them."""
    life = Life("processing", "b", exactly(1), at=exactly(9), token=exactly(7))
    args = {"token": 7, "known": True, "delay": 100, "charge": 1, "error": "e", "max_attempts": 3}
    [failed] = task_model.step(life, Op(0, "retry", 10, 20, args, "retried"))
    assert (failed.at, failed.kept) == ((110, 120), (110, 120))
    seen = ("retry", 115, None, Parsed("b", None, 1), "1 0 @115 e", "", 0, 0)
    [known] = task_model.step(failed, Op(1, "get", 30, 40, {}, seen))
    assert (known.at, known.kept, known.group) == (exactly(115), exactly(115), ZERO)
    late = ("retry", 121, *seen[2:])
    assert not list(task_model.step(failed, Op(1, "get", 30, 40, {}, late)))
