"""What a run showed: operations, faults, and the outcome of stored tasks in the terms of Jepsen."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from tests.histories.checker import Verdict, check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.histories.history import Op, Record
    from tests.histories.recording import Recording

STORED: Final = frozenset({"created", "replaced", "follows", "repeated"})


@dataclass
class Report:
    """The result of one run, or of several together."""

    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)  # ok, lost, unexpected, duplicated, recovered
    histories: int = 0
    undecided: int = 0
    states: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: Self) -> None:
        self.operations += other.operations
        self.faults += other.faults
        self.tasks += other.tasks
        self.histories += other.histories
        self.undecided += other.undecided
        self.states += other.states
        self.violations += other.violations

    @property
    def clean(self) -> bool:
        return not self.violations

    def summary(self) -> str:
        """One line."""
        calls, faults = sum(self.operations.values()), sum(self.faults.values())
        tasks = ", ".join(f"{word} {self.tasks[word]}" for word in WORDS)
        verdict = "linearizable" if self.clean else f"{len(self.violations)} VIOLATIONS"
        return (
            f"{calls} operations, {faults} faults, {self.histories} histories ({self.undecided} undecided, "
            f"{self.states} states), tasks: {tasks}: {verdict}"
        )

    def lines(self) -> Iterator[str]:
        verbs: dict[str, Counter[str]] = defaultdict(Counter)
        for (verb, outcome), count in self.operations.items():
            verbs[verb][outcome] += count
        for verb, outcomes in sorted(verbs.items()):
            yield f"  {verb:20} " + "  ".join(
                f"{word} {outcomes[word]}" for word in ("ok", "failed", "unknown")
            )
        yield "  faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        yield self.summary()
        yield from self.violations[:10]


WORDS: Final = ("ok", "lost", "unexpected", "duplicated", "recovered")


def judged(recording: Recording, faults: Counter[str], *, moved_ms: float = 0.0) -> Report:
    """Judge a recording. After this machine's clock moved, no time in it can be compared."""
    report = Report(recording.outcomes, faults)
    if moved_ms > 5:
        report.undecided = 1
        return report
    report.violations += [found for record in recording.records for found in _wrong(record)]
    for task_id, ops in sorted(recording.histories().items()):
        found = check(ops)
        report.histories += 1
        report.states += found.states
        report.undecided += found.linearizable is None
        if found.linearizable is False:
            report.violations.append(explained(task_id, found))
    report.tasks = ledger(recording)
    report.violations += [
        f"{report.tasks[word]} tasks {word}" for word in ("lost", "unexpected") if report.tasks[word]
    ]
    return report


def _wrong(record: Record) -> Iterator[str]:
    """What no order of operations could excuse."""
    reply = record.reply
    said = reply[0] if record.verb in {"schedule", "claim", "isolate"} and isinstance(reply, list) else None
    if said is not None and not record.lo - 5 < said < record.hi + 5:
        yield f"{record.verb} went by another time than Redis': {said} is not within {record.lo} and {record.hi}"
    if record.verb in {"claim", "isolate"} and reply and len(reply) > 1:
        early = [each for each, due in zip(reply[4], reply[5], strict=True) if int(due) > reply[0]]
        yield from (f"{task_id} was leased before its due time: {reply}" for task_id in early)
    if record.verb == "reconcile" and reply and reply[1]:
        yield f"indexes disagreed: reconcile repaired {reply[1]}"
    if record.verb == "restore_orphans" and reply and reply[2]:
        yield f"tasks were in no index: restore_orphans returned {reply[2]}"
    if record.verb == "audit_size" and reply and reply[1]:
        yield f"the size of all tasks was wrong by {reply[1]} bytes"
    if record.verb == "get" and reply and reply[0] == "orphan":
        yield f"{record.named['id']} is in no index"


def explained(task_id: str, found: Verdict) -> str:
    """The end of the longest order that was found, and what could not follow."""
    lines = [f"the history of {task_id} is not linearizable; its last possible operations:"]
    lines += [f"    {shown(op)}" for op in found.furthest[-12:]]
    lines += [f"  then the task was {found.life}", "  and none of these could follow:"]
    return "\n".join([*lines, *(f"    {shown(op)}" for op in found.stuck)])


def shown(op: Op) -> str:
    return f"{op.number:6} {op.lo:.1f}–{op.hi:.1f} {op.verb} {dict(op.args)} → {op.result}"


def ledger(recording: Recording) -> Counter[str]:
    """Count what became of each content, by plainer rules than the model's: a second opinion.

    ok: it was accepted, and it is there, or something may have ended it. lost: neither. unexpected: it is there, but no
    call stored it. duplicated: it was done more than once, as after a call that was repeated. recovered: the reply to
    the only call that stored it was lost, and it was claimed or found.
    """
    words = Counter[str]()
    for ops in recording.histories().values():
        asked = {op.args["body"] for op in ops if op.verb == "schedule"}
        accepted = {op.args["body"]: op.lo for op in ops if op.verb == "schedule" and op.result in STORED}
        runs = {op.args["token"]: op.args["envelope"].body for op in ops if op.verb in CLAIMS and op.required}
        found = [op.result[3].body for op in ops if op.verb == "get" and op.result]
        done = Counter(runs.get(op.args["token"]) for op in ops if op.verb == "ack" and op.result == "acked")
        ended = max((op.hi for op in ops if op.verb in ENDS and op.result not in ENDLESS), default=0.0)
        there = any(op.result for op in ops[-1:])
        words["lost"] += sum(not there and ended < at for at in accepted.values())
        words["ok"] += sum(there or ended >= at for at in accepted.values())
        words["unexpected"] += len({*runs.values(), *found} - asked)
        words["duplicated"] += sum(count > 1 for count in done.values())
        words["recovered"] += len(({*runs.values(), *found} & asked) - accepted.keys())
    return words


CLAIMS: Final = frozenset({"claim", "isolate"})
ENDS: Final = frozenset({"ack", "cancel", "bulk", "purge", "schedule", "recover"})
ENDLESS: Final = frozenset({"lease_lost", "not_found", "kept", "exists", "gone", "alive", 0, (0, 0, 0, 0)})


COUNTED: Final[Mapping[tuple[str, object], str]] = {
    **dict.fromkeys(
        [("schedule", "created"), ("schedule", "replaced"), ("schedule", "follows")], "scheduled"
    ),
    **dict.fromkeys([("claim", "leased"), ("isolate", "leased")], "claimed"),
    **dict.fromkeys([("bury", "buried"), ("bury", "superseded"), ("retry", "buried")], "buried"),
    ("retry", "superseded"): "buried",
    ("cancel", "cancelled"): "cancelled",
    ("reschedule", "rescheduled"): "rescheduled",
    ("redrive", 1): "redriven",
    ("purge", 1): "purged",
    ("ack", "acked"): "acked",
    ("retry", "retried"): "retried",
    ("release", "released"): "released",
    ("park", "parked"): "parked",
    ("reclaim", "reclaimed"): "reclaimed",
    ("recover", "completed"): "completed",
    ("recover", "waited"): "waited",
}
"""The counter that each answer increments."""


def miscounted(recording: Recording, stats: Mapping[str, int]) -> list[str]:
    """Counters of Redis that have less than was answered; they have more where replies were lost."""
    answered = Counter[str]()
    for ops in recording.histories().values():
        answered.update(COUNTED[op.verb, op.result] for op in ops if (op.verb, op.result) in COUNTED)
    wrong = {
        name: (count, stats.get(name, 0)) for name, count in answered.items() if stats.get(name, 0) < count
    }
    return [f"{name}: {count} were answered, {counted} counted" for name, (count, counted) in wrong.items()]
