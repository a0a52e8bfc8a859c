"""What workers and scanners may do to a task, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.histories.history import FAR, Op, Span, earlier, exactly, meet, plus
from tests.histories.life import (
    IDLE,
    ZERO,
    Answers,
    Life,
    burial,
    crash,
    ended,
    entered,
    missed,
    put_back,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def claim(life: Life, op: Op) -> Answers:
    lease = op.args["lease_ms"]
    if life.home not in {"delayed", "retry"} or life.at[0] > op.at[1] or missed(life, op.at):
        return
    if not op.required:
        yield None, _leased(life, op, token=_tokens(op.at), expiry=plus(op.at, lease))
        return
    at = meet(life.at, exactly(op.args["due"]))
    found = wrapped(life, op.args["envelope"]) if at and at[0] <= op.at[1] else None
    if found and life.home == "retry":
        found = entered(found, op.args["entry"] or "")
    if found:
        token = exactly(op.args["token"])
        yield op.result, _leased(found, op, token=token, expiry=exactly(op.args["now"] + lease))


def _tokens(at: Span) -> Span:
    """A token is the time in µs, or above the last one."""
    return at[0] * 1000, (at[1] + 2) * 1000


def _leased(life: Life, op: Op, *, token: Span, expiry: Span) -> Life:
    leased = life._replace(home="processing", at=expiry, deferred=False, token=token, apart=False)
    return leased._replace(claim=op.args["claim"])


def isolate(life: Life, op: Op) -> Answers:
    if life.home != "suspect" or missed(life, op.at) or life.kept_due[0] > op.at[1]:
        return
    if op.required:
        nth, size = op.args["nth"], op.args["size"]
        token, expiry = exactly(op.args["token"]), exactly(op.args["now"] + op.args["lease_ms"])
        found = wrapped(life, op.args["envelope"])
        found = found and _isolated(found, op, nth, size, token=token, expiry=expiry)
        found = found and entered(found, op.args["entry"])
        if found:
            yield op.result, found
        return
    for size in range(1, op.args["limit"] + 1):
        for nth in range(size):
            expiry = plus(op.at, op.args["lease_ms"])
            yield None, _isolated(life, op, nth, size, token=_tokens(op.at), expiry=expiry)


def _isolated(life: Life, op: Op, nth: int, size: int, *, token: Span, expiry: Span) -> Life:
    """The `nth` of a group, from 0."""
    half = -(-size // 2)
    group = plus(token, -nth + (half if nth >= half else 0))
    leased = _leased(life, op, token=token, expiry=expiry)
    return leased._replace(apart=True, group=group, size=size, counted=True)


def _held(life: Life, op: Op) -> list[Life | None]:
    """The task if this is its current lease; None for a lost lease. Both, if that is unknown."""
    token = exactly(op.args["token"])
    if life.home != "processing" or meet(life.token, token) is None:
        return [None]
    if life.token == token:
        return [life]
    return [None] if op.args["known"] else [life._replace(token=token), None]


def settling(settle: Callable[[Life, Op], tuple[str, Life]]) -> Callable[[Life, Op], Answers]:
    def verb(life: Life, op: Op) -> Answers:
        for held in _held(life, op):
            yield ("lease_lost", life) if held is None else settle(held, op)

    return verb


def unless_cancelled(settle: Callable[[Life, Op], tuple[str, Life]]) -> Callable[[Life, Op], Answers]:
    """What ends a lease other than an ack ends a task as cancelled whose run was to be cancelled."""
    return settling(lambda life, op: end_cancelled(life, op) if life.cancelling else settle(life, op))


def end_cancelled(life: Life, op: Op) -> tuple[str, Life]:  # noqa: ARG001 -- as all verbs
    return "cancelled", ended(life)


def extend(life: Life, op: Op) -> tuple[str, Life]:
    said = "to_cancel" if life.cancelling else "extended"
    return said, life._replace(at=plus(op.at, op.args["lease_ms"]), deferred=False, claim="")


def ack(life: Life, op: Op) -> tuple[str, Life]:  # noqa: ARG001 -- as all verbs
    return "acked", ended(life)


def retry(life: Life, op: Op) -> tuple[str, Life]:
    args = op.args
    failed = life._replace(failures=life.failures + args["charge"])
    if args["charge"] and failed.failures >= args["max_attempts"]:
        return burial(failed, op.at, f"attempts {args['error']}")
    due = plus(op.at, args["delay"])
    failed = failed._replace(home="retry", at=due, error=args["error"], counted=True, **IDLE)
    return "retried", failed._replace(kept=due if args["delay"] else ZERO, group=ZERO, size=0)


def bury(life: Life, op: Op) -> tuple[str, Life]:
    return burial(life._replace(failures=life.failures + 1), op.at, f"buried {op.args['error']}")


def release(life: Life, op: Op) -> tuple[str, Life]:
    return "released", put_back(life, exactly(op.args["due"]))


def park(life: Life, op: Op) -> tuple[str, Life]:  # noqa: ARG001 -- as all verbs
    if life.follow:
        return "parked", ended(life)
    return "parked", life._replace(home="parked", at=ZERO, **IDLE)


def unpark(life: Life, op: Op) -> Answers:  # noqa: ARG001 -- as all verbs
    """Parked tasks of this task's kind are returned: none of them was parked, all are returned, or some."""
    if life.home == "parked":
        home = "suspect" if life.group != ZERO else "retry" if life.counted else "delayed"
        due = life.group if home == "suspect" else life.kept_due
        yield from ((some, life._replace(home=home, at=due)) for some in ("all", "some"))
    else:
        yield from ((some, life) for some in ("none", "all"))
    yield "some", life


def unclaim(life: Life, op: Op) -> Answers:
    """The tasks of a lost claim are returned."""
    claim, lease = op.args["claim"], op.args["lease_ms"]
    if life.home == "processing" and life.claim == claim:
        claimed = plus(life.at, -lease)
        due = earlier(earlier(op.at, claimed), life.kept_due if life.kept_due[1] else (FAR, FAR))
        if life.cancelling:
            yield from ((few, ended(life)) for few in ("none", "some"))
        else:
            yield "some", put_back(life, due)
        if op.at[1] < life.at[0]:  # its record in Redis, which expires with the lease, was there
            return
    yield from ((few, life) for few in ("none", "some"))


# scanners and reapers


def reclaim(life: Life, op: Op) -> Answers:
    token, before = op.args["token"], min(op.at[1], op.args["before"])
    if life.home != "processing" or (life.at[0] > before and not life.deferred):
        return
    if token is not None and meet(life.token, exactly(token)) is None:
        return
    held = life if token is None else life._replace(token=exactly(token))
    yield crash(held, op.at, op.args["max_crashes"])


def recover(life: Life, op: Op) -> Answers:
    args = op.args
    yield "lock_lost", life
    for held in _held(life, op):
        if held is None:
            yield "gone", life
            continue
        at, expiry = exactly(abs(args["expiry"])), args["expiry"]
        same = meet(held.at, at) if held.deferred == (expiry < 0) else None
        if same is None or held.at != at or abs(expiry) > op.at[0]:
            yield "alive", life
        if same is not None and abs(expiry) <= op.at[1]:
            yield _decided(held, op)


def _decided(life: Life, op: Op) -> tuple[str, Life]:
    verdict = op.args["verdict"]
    if verdict == "complete":
        return "completed", ended(life)
    if verdict == "wait":
        return "waited", life._replace(at=plus(op.at, op.args["wait_ms"]), deferred=True, claim="")
    if verdict == "bury" and not life.cancelling:
        crashed = life._replace(crashes=life.crashes + 1)
        return burial(crashed, op.at, f"recovered {op.args['reason']}")
    return crash(life, op.at, op.args["max_crashes"])
