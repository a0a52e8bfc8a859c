"""What clients may do to a task, and what it answers."""

from __future__ import annotations

from typing import Any

from tests.histories.history import Op, Span, earlier, exactly, later, meet, plus
from tests.histories.life import (
    NOTHING,
    WAITING,
    ZERO,
    Answers,
    Follow,
    Life,
    due_at,
    entered,
    splits,
    wrapped,
)


def schedule(life: Life, op: Op) -> Answers:
    args, mode = op.args, op.args["if_exists"]
    due, latest = due_at(args["when"], op.at), None
    if mode == "debounce":
        latest = _latest(life, op.at, args["wait"])
        due = later(op.at, earlier(due, latest))
    new = Life("delayed", args["body"], due, latest, args["deadline"], due)
    if not life.home:
        yield "created", new
    elif mode in {"replace", "debounce"}:
        if life.home == "processing":
            yield "follows", life._replace(follow=Follow(args["body"], due, latest))
        else:
            yield "replaced", new
    else:
        same = args["repeated"] and life.body == args["body"] and life.latest is None
        if same and due[1] >= life.due[0] and due[0] <= life.due[1] + 60_000:
            yield "repeated", life
        if not same or due[0] < life.due[1] or due[1] > life.due[0] + 60_000:
            yield {"keep": "kept", "reject": "exists"}[mode], life


def _latest(life: Life, at: Span, wait: int) -> Span:
    """The latest due time: of the follow-up, of a task that waits and never failed or crashed, or a new one."""
    kept = None
    if life.follow:
        kept = life.follow.latest
    elif not life.failures + life.crashes and life.home in {"delayed", "retry", "parked"}:
        kept = life.latest
    return kept or plus(at, wait)


def _where(life: Life) -> str:
    """The answer about a task that cancel and reschedule do not change."""
    return {"": "not_found", "processing": "in_flight", "dlq": "dead"}.get(life.home, "")


def cancel(life: Life, op: Op) -> Answers:
    refused = _where(life)
    if not refused:
        yield "cancelled", NOTHING
    elif refused == "in_flight" and op.args.get("running"):
        yield "cancelling", life._replace(follow=None, cancelling=True)
    elif life.follow:
        yield "follow_up_cancelled", life._replace(follow=None)
    else:
        yield refused, life


def reschedule(life: Life, op: Op) -> Answers:
    refused, was = _where(life), op.args["was"]
    if refused and not (refused == "in_flight" and life.follow):
        yield refused, life
        return
    stands = life.follow.due if refused and life.follow else life.kept_due
    stands = life.at if life.home in {"delayed", "retry"} else stands
    if was is not None and stands != exactly(was):
        yield "changed", life
    if was is not None and meet(stands, exactly(was)) is None:
        return
    for at in splits(op.args["when"], op.at):
        due: Span | None = due_at(op.args["when"], at)
        assert due is not None
        if op.args["due"] is not None:
            due = meet(due, exactly(op.args["due"]))
        if due is not None:
            yield "rescheduled", _moved(life, due, ahead=_ahead(op.args["when"], at))


def _ahead(when: str, at: Span) -> bool:
    return int(when) > 0 if when.startswith("+") else int(when) > at[1]


def _moved(life: Life, due: Span, *, ahead: bool) -> Life:
    if life.home == "processing":
        assert life.follow is not None
        return life._replace(follow=life.follow._replace(due=due))
    home = "retry" if life.home == "suspect" else life.home
    if life.home == "parked":
        home = "retry" if life.counted else "delayed"
    moved = life._replace(home=home, at=due)
    if home == "delayed" or life.deadline is not None:
        moved = moved._replace(due=due)
    return moved._replace(kept=due if ahead else ZERO) if life.counted else moved


def get(life: Life, op: Op) -> Answers:
    if not life.home:
        yield (), life
        return
    seen = op.result
    narrowed = seen and _seen(life, seen)
    if narrowed:
        yield seen, narrowed


def _seen(life: Life, seen: tuple[Any, ...]) -> Life | None:
    """The task if it is the one that `get` returned: state, score, token, envelope, entry, story, due of follow-up."""
    state, score, token, envelope, entry, story, follows, cancelling = seen
    found: Life | None = wrapped(life, envelope) if state == life.home else None
    found = entered(found, entry) if found else None
    if found is None or story != (life.story if state == "dlq" else "") or bool(follows) != bool(life.follow):
        return None
    if bool(cancelling) != life.cancelling:
        return None
    if life.follow:
        due = meet(life.follow.due, exactly(follows))
        if due is None:
            return None
        found = found._replace(follow=life.follow._replace(due=due))
    if token is not None:
        lease = meet(life.token, exactly(token))
        if lease is None or life.deferred != (score < 0):
            return None
        found = found._replace(token=lease)
    at = meet(found.kept_due if state == "parked" else found.at, exactly(abs(score)))
    return None if at is None else found if state == "parked" else found._replace(at=at)


def bulk(life: Life, op: Op) -> Answers:
    """A bulk call with the tag of this task alone: counts of tasks, follow-ups, in flight and dead."""
    cancels, waits = op.args["cancels"], life.home in WAITING
    if waits:
        yield (1, 0, 0, 0), NOTHING if cancels else life
    else:
        after = life._replace(follow=None) if cancels else life
        yield (
            (0, int(life.follow is not None), int(life.home == "processing"), int(life.home == "dlq")),
            after,
        )


def redrive(life: Life, op: Op) -> Answers:
    if life.home != "dlq":
        yield 0, life
        return
    delay = op.args["delay"]
    due = plus(op.at, delay)
    redriven = life._replace(home="delayed", at=due, story="", counted=delay > 0, kept=due if delay else ZERO)
    yield 1, redriven._replace(due=due) if life.deadline is not None else redriven


def purge(life: Life, op: Op) -> Answers:  # noqa: ARG001 -- as all verbs
    yield (1, NOTHING) if life.home == "dlq" else (0, life)
