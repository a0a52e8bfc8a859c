"""From what was recorded to the part of it that each task had.

Of a call about several tasks, each has its part. What a reply says of Redis' clock narrows its window. Operations that
were refused before they ran, and those that say nothing about the task, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.histories.envelopes import deadline_of, kind_of, parsed
from tests.histories.history import BLUR_MS, FAR, Op, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def _member(member: str) -> tuple[str, int]:
    task_id, _, token = member.rpartition(":")
    return task_id, int(token)


Part = tuple[str, Op]
SETTLING: Final = {"ack": "acked", "extend": "extended"}
LEAVES: Final = ("extend", "ack", "retry", "bury", "release", "park", "end_cancelled")


class Split:
    """The parts of records. Calls that may concern any task have a part for each that was known before them."""

    def __init__(self, records: list[Record]) -> None:
        self.kinds: dict[str, str] = {}
        self.given: set[tuple[str, int]] = set()  # leases whose claim was answered
        self._void: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for record in records:
            self._learn(record)

    def _learn(self, record: Record) -> None:
        if record.verb == "schedule":
            for task_id, _, body in _triples(record.rest):
                self.kinds[task_id] = kind_of(body)
        if record.verb in {"claim", "isolate"} and record.reply and len(record.reply) > 1:
            self.given |= {(task_id, token) for task_id, token, *_ in _leases(record)}
        ok, brought = record.outcome == "ok", record.verb in {"claim", "isolate"}
        if ok and (record.verb == "unclaim" or (brought and len(record.reply) > 1 and record.reply[4])):
            self._void[record.named["claimer"]].append((int(record.named["number"]), record.hi))

    def parts(self, record: Record) -> Iterator[Part]:
        if isinstance(record.reply, str) and record.reply.startswith(("STALELAYOUT", "MOVING")):
            return
        yield from PARTS.get(record.verb, _nothing)(self, record)

    def ends(self, record: Record) -> float:
        """When an unanswered claim can be executed no more: its time is over, or a later one of its claimer was."""
        named = record.named
        number, not_after = int(named["number"]), float(named["not_after_ms"])
        void = [
            hi for later, hi in self._void[named["claimer"]] if number and later >= number and hi > record.lo
        ]
        return min([FAR, not_after + 1 + BLUR_MS, *void])


def _op(record: Record, args: Mapping[str, Any], result: Any = None, now: int | None = None) -> Op:  # noqa: ANN401
    lo, hi = record.lo, record.hi
    if now is not None:
        lo, hi = max(lo, now - BLUR_MS), min(hi, now + 1 + BLUR_MS)
        args = {**args, "now": now}
    return Op(record.number, record.verb, lo, hi, args, None if record.outcome == "unknown" else result)


def _nothing(split: Split, record: Record) -> Iterator[Part]:  # noqa: ARG001 -- as all parts
    return iter(())


def _triples(rest: list[Any]) -> Iterator[tuple[str, str, str]]:
    yield from ((rest[at], rest[at + 1], rest[at + 2]) for at in range(0, len(rest), 3))


def _schedule(split: Split, record: Record) -> Iterator[Part]:  # noqa: ARG001
    named, reply = record.named, record.reply
    notes = dict(zip(reply[2][::3], reply[2][1::3], strict=True)) if reply else {}
    for nth, (task_id, when, body) in enumerate(_triples(record.rest)):
        envelope = parsed(body + "\0" * 6)
        args = {"if_exists": named["if_exists"], "repeated": str(named["repeated"]) == "1", "when": str(when)}
        args |= {"body": envelope.body, "wait": envelope.latest, "deadline": deadline_of(body)}
        yield task_id, _op(record, args, notes.get(nth, "created"), reply[0] if reply else None)


def _cancel(split: Split, record: Record) -> Iterator[Part]:  # noqa: ARG001
    running = int(record.named["running"]) == 1
    yield record.named["id"], _op(record, {"running": running}, record.reply)


def _reschedule(split: Split, record: Record) -> Iterator[Part]:  # noqa: ARG001
    named, reply = record.named, record.reply or [None, None, None]
    done, when = reply[0] == "rescheduled", str(named["when"])
    was = None if named["was"] == "" else int(named["was"])
    now = int(reply[1]) - int(when) if done and when.startswith("+") else None
    args = {"when": when, "was": was, "due": int(reply[1]) if done else None}
    yield named["id"], _op(record, args, reply[0], now)


def _get(split: Split, record: Record) -> Iterator[Part]:  # noqa: ARG001
    if record.outcome != "ok":
        return
    seen: tuple[Any, ...] = ()
    if record.reply:
        state, score, member, envelope, entry, story, follows, asked = record.reply
        token = _member(member)[1] if member else None
        seen = (state, score, token, parsed(envelope), entry, story, follows, asked)
    yield record.named["id"], _op(record, {}, seen)


def _leases(record: Record) -> Iterator[tuple[str, int, int, int, str, str | None]]:
    """Of each task that was leased: ID, token, position, due time, envelope and entry."""
    _, first, _, _, ids, dues, envelopes, counts, *_ = record.reply
    entries = dict(zip(counts[::2], counts[1::2], strict=True))
    for nth, task_id in enumerate(ids):
        if nth < len(envelopes) and envelopes[nth]:
            yield task_id, int(first) + nth, nth, int(dues[nth]), envelopes[nth], entries.get(nth)


def _claim(split: Split, record: Record) -> Iterator[Part]:
    named = record.named
    args: dict[str, Any] = {"lease_ms": int(named["lease_ms"]), "limit": int(named["limit"])}
    args["claim"] = f"{named['claimer']} {named['number']}"
    if record.outcome == "unknown":
        record = replace(record, hi=split.ends(record))
        if record.hi > record.lo:
            yield from ((task_id, _op(record, args)) for task_id in split.kinds)
        return
    if len(record.reply) > 1:
        for task_id, token, nth, due, envelope, entry in _leases(record):
            of_one: dict[str, Any] = {
                "token": token,
                "nth": nth,
                "size": len(record.reply[4]),
                "due": due,
                "entry": entry,
            }
            of_one["envelope"] = parsed(envelope)
            yield task_id, _op(record, {**args, **of_one}, "leased", record.reply[0])


def _unclaim(split: Split, record: Record) -> Iterator[Part]:
    named = record.named
    args = {"claim": f"{named['claimer']} {named['number']}", "lease_ms": int(named["lease_ms"])}
    result = "some" if record.reply else "none"
    yield from ((task_id, _op(record, args, result)) for task_id in split.kinds)


def _settled(split: Split, record: Record) -> Iterator[Part]:
    """Leases whose lost ones are named by position, or whose outcomes are."""
    width = {"extend": 1, "ack": 1, "end_cancelled": 1, "release": 2, "park": 2, "bury": 2, "retry": 4}[
        record.verb
    ]
    for nth, at in enumerate(range(0, len(record.rest), width)):
        member, *own = record.rest[at : at + width]
        task_id, token = _member(member)
        args = {"token": token, "known": (task_id, token) in split.given}
        match record.verb:
            case "extend":
                args["lease_ms"] = int(record.named["lease_ms"])
            case "retry":
                args |= {"delay": int(own[0]), "charge": int(own[1]), "error": own[2]}
                args["max_attempts"] = int(record.named["max_attempts"])
            case "bury":
                args["error"] = own[0]
            case "release":
                args["due"] = int(own[0])
        yield task_id, _op(record, args, _result(record, nth))


def _result(record: Record, nth: int) -> str | None:
    if record.outcome != "ok":
        return None
    if record.verb == "extend" and nth in record.reply[1]:
        return "to_cancel"
    lost = record.reply[0] if record.verb == "extend" else record.reply
    if record.verb in SETTLING:
        return "lease_lost" if nth in lost else SETTLING[record.verb]
    return str(record.reply[nth])


def _unpark(split: Split, record: Record) -> Iterator[Part]:
    kinds = {prefix.split(" ")[0] for prefix in record.rest}
    limit = int(record.named["limit"])
    if not limit:
        return
    result = None
    if record.outcome == "ok":
        count = record.reply[0]
        result = "none" if count == 0 else "some" if count == limit else "all"
    for task_id, kind in split.kinds.items():
        if not kinds or kind in kinds:
            yield task_id, _op(record, {}, result)


def _reclaim(split: Split, record: Record) -> Iterator[Part]:
    before = record.named["before_ms"]
    args = {"max_crashes": int(record.named["max_crashes"]), "before": FAR if before == "" else int(before)}
    if record.outcome == "unknown":
        yield from ((task_id, _op(record, {**args, "token": None})) for task_id in split.kinds)
        return
    for member, outcome in zip(record.reply[::2], record.reply[1::2], strict=True):
        task_id, token = _member(member)
        yield task_id, _op(record, {**args, "token": token}, outcome)


def _recover(split: Split, record: Record) -> Iterator[Part]:
    named = record.named
    task_id, token = _member(named["member"])
    numbers = {name: int(named[f"{name}_ms"]) for name in ("expiry", "wait")}
    args = {"token": token, "known": (task_id, token) in split.given, "expiry": numbers["expiry"]}
    args |= {"wait_ms": numbers["wait"], "verdict": named["verdict"], "reason": named["reason"]}
    yield task_id, _op(record, {**args, "max_crashes": int(named["max_crashes"])}, record.reply)


def _redrive(split: Split, record: Record) -> Iterator[Part]:  # noqa: ARG001
    """Runs redrive one dead letter at a time."""
    task_id, delay = record.rest
    yield task_id, _op(record, {"delay": int(delay)}, record.reply)


def _purge(split: Split, record: Record) -> Iterator[Part]:  # noqa: ARG001
    [task_id] = record.rest
    yield task_id, _op(record, {}, record.reply)


def _bulk(split: Split, record: Record) -> Iterator[Part]:
    """Runs give each task a tag of its own, which is its ID."""
    action, task_id = record.named["action"], record.named["tag"]
    if task_id in split.kinds and (action == "cancel" or record.outcome == "ok"):
        counts = tuple(record.reply[1:5]) if record.outcome == "ok" else None
        yield task_id, _op(record, {"cancels": action == "cancel"}, counts)


PARTS: Final[dict[str, Callable[[Split, Record], Iterator[Part]]]] = {
    "schedule": _schedule,
    "cancel": _cancel,
    "reschedule": _reschedule,
    "get": _get,
    "bulk": _bulk,
    "claim": _claim,
    "isolate": _claim,
    "unclaim": _unclaim,
    **dict.fromkeys(LEAVES, _settled),
    "unpark": _unpark,
    "reclaim": _reclaim,
    "recover": _recover,
    "redrive": _redrive,
    "purge": _purge,
}
