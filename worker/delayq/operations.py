"""What a client does, without the waiting: generators that yield calls (or seconds to pause) and are sent the answers.

Client and SyncClient drive the same generators; they differ in how they wait and in nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from delayq.acknowledge import EARLY, HURRY_MS, Shortfall, unfit
from delayq.broker import BATCH, Broker
from delayq.errors import (
    DelayQError,
    DelayTooLong,
    NotAcknowledged,
    QueueFull,
    Refused,
    TaskExists,
    TaskInFlight,
    Unavailable,
)
from delayq.intake import Intake, checked_id, due_ms_of, when
from delayq.values import Cancelled, Counts, Outcome, Rescheduled, Scheduled, State, TaskRow, TaskView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delayq.acknowledge import Acknowledge, Commands
    from delayq.broker import Call
    from delayq.contract import Limits
    from delayq.intake import Chunk, NewTask
    from delayq.replies import Stored

T = TypeVar("T")
# Yields calls to run, seconds to pause, Start or Finish; is sent the answers, which travel untyped.
Operation = Generator[Any, Any, T]
REFUSALS = frozenset({Outcome.EXISTS, Outcome.IN_FLIGHT, Outcome.FULL, Outcome.TOO_FAR})
IfExists = Literal["reject", "keep", "replace"]

log = logging.getLogger(__name__)

PAUSES_SECONDS = (0.05, 0.2, 1.0)  # between tries while Redis is unavailable


CONFIRMED_CHUNKS = 8  # that share one confirmation, for it may take a second: of appendfsync everysec


class Start(NamedTuple):
    """Send these calls and answer with a ticket at once: what follows overlaps with Redis' own work."""

    calls: list[Call[Any]]
    behind: Commands = ()


class Finish(NamedTuple):
    """Answer with what the calls of this ticket came to, and after that with the replies to what was behind them."""

    ticket: Any


class Trip(NamedTuple):
    """Send these calls and those commands behind them; answered as Finish is."""

    calls: list[Call[Any]]
    behind: Commands


@dataclass
class Results:
    """What schedule_many has come to so far, by position."""

    stored: dict[int, Scheduled] = field(default_factory=dict)
    refused: dict[int, Refused] = field(default_factory=dict)
    unconfirmed: list[int] = field(default_factory=list)
    shortfall: Shortfall | None = None  # the first

    @property
    def scheduled(self) -> list[Scheduled]:
        """What is stored, in the order given."""
        return [self.stored[at] for at in sorted(self.stored)]

    def check_acknowledged(self) -> None:
        """Raise NotAcknowledged when some of what is stored was not confirmed."""
        if self.shortfall is None or not self.unconfirmed:
            return
        unconfirmed = [self.stored[at] for at in sorted(self.unconfirmed)]
        raise NotAcknowledged(
            self.shortfall.message([each.id for each in unconfirmed]),
            scheduled=self.scheduled,
            unconfirmed=unconfirmed,
            refused=dict(sorted(self.refused.items())),
            confirmed=self.shortfall.confirmed,
            wanted=self.shortfall.asked.wanted,
        )


class Operations:
    """The operations on one queue, within its limits."""

    def __init__(self, broker: Broker, limits: Limits, acknowledge: Acknowledge | None = None) -> None:
        """`limits` come from spec.limits, `acknowledge` from spec.delivery."""
        self.broker, self.limits, self._acknowledge = broker, limits, acknowledge
        self._can_acknowledge = False  # not asked yet
        self._intake = Intake(limits, len(broker.shards))
        self._options = {
            "max_length": -(-limits.max_length // len(broker.shards)),
            "max_delay_ms": limits.max_delay_seconds * 1000,
        }

    # schedule

    def schedule(self, task: NewTask, if_exists: IfExists) -> Operation[Scheduled]:
        """Store one task, or raise why it was refused or is in doubt."""
        results = yield from self.schedule_many([task], if_exists)
        for error in results.refused.values():
            raise error
        results.check_acknowledged()
        return results.stored[0]

    def schedule_many(self, tasks: Iterable[NewTask], if_exists: IfExists) -> Operation[Results]:
        """Store any number of tasks, a chunk per round trip; the next chunk is encoded while Redis stores this one."""
        if if_exists not in ("reject", "keep", "replace"):
            raise ValueError(f'if_exists: expected "reject", "keep" or "replace", got {if_exists!r}')
        if self._acknowledge and not self._can_acknowledge:
            yield from self._check_acknowledge(self._acknowledge)
        results, under_way = Results(), None
        try:
            for chunks in self._together(self._intake.chunks(tasks, results.refused)):
                calls = [self._store(chunk, if_exists) for chunk in chunks]
                ticket = yield Start(calls, self._behind(results))
                earlier, under_way = under_way, (ticket, chunks)
                if earlier:
                    yield from self._collect(*earlier, if_exists, results)
        except Exception:  # from `tasks` itself, too; what was sent still has its answer on the way
            if under_way:
                with suppress(DelayQError):
                    yield Finish(under_way[0])
            raise
        if under_way:
            yield from self._collect(*under_way, if_exists, results)
        return results

    def _together(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, ...]]:
        while together := tuple(islice(chunks, CONFIRMED_CHUNKS if self._acknowledge else 1)):
            yield together

    def _store(self, chunk: Chunk, if_exists: IfExists, *, repeated: bool = False) -> Call[Stored]:
        shard, _, flat = chunk
        return self.broker.schedule(shard, flat, if_exists=if_exists, repeated=int(repeated), **self._options)

    def _collect(
        self, ticket: object, chunks: Sequence[Chunk], if_exists: IfExists, results: Results
    ) -> Operation[None]:
        try:
            answers = yield Finish(ticket)
        except Unavailable:
            calls = [self._store(chunk, if_exists, repeated=True) for chunk in chunks]
            answers = yield from persistently(calls, self._behind(results))
        for chunk, done in zip(chunks, answers, strict=False):
            self._note(chunk, done, results)
        if self._acknowledge:
            new = [at for _, positions, _ in chunks for at in positions if at in results.stored]
            self._note_confirmation(self._acknowledge, answers[-1], new, results)

    def _note(self, chunk: Chunk, done: Stored, results: Results) -> None:
        if done.clamped:
            log.warning(
                "due_in_the_past", extra={"fields": {"tasks": done.clamped, "queue": self.broker.queue}}
            )
        _, positions, flat = chunk
        for nth, at in enumerate(positions):
            task_id, moment = flat[3 * nth], flat[3 * nth + 1]
            outcome = done.notes.get(nth, Outcome.CREATED) if done.notes else Outcome.CREATED
            if outcome in REFUSALS:
                results.refused[at] = self._refusal(task_id, outcome)
            else:
                results.stored[at] = Scheduled(task_id, due_ms_of(moment, done.now_ms), outcome)

    # acknowledge

    def _behind(self, results: Results) -> Commands:
        """What has to confirm a round trip. After one failed, the call will fail: the rest is not waited for."""
        if self._acknowledge is None:
            return ()
        return self._acknowledge.behind(self._stats, HURRY_MS if results.shortfall else None)

    @property
    def _stats(self) -> str:
        return self.broker.shards[0].stats  # one key for all shards, so that calls sent together share a wait

    @staticmethod
    def _note_confirmation(asked: Acknowledge, replies: object, new: list[int], results: Results) -> None:
        confirmed = asked.confirmed(replies)
        if confirmed >= asked.wanted:
            return
        results.unconfirmed += new
        if results.shortfall is None:
            why = str(replies) if isinstance(replies, DelayQError) else ""
            results.shortfall = Shortfall(asked, confirmed, why)

    def _check_acknowledge(self, asked: Acknowledge) -> Operation[None]:
        """Find out, before anything is stored, whether this Redis can confirm anything, and speaks the truth."""
        replies = yield from _replies(asked.behind(self._stats, HURRY_MS))  # a write: only a master takes one
        why = str(replies) if isinstance(replies, DelayQError) else ""
        if not why and asked.kind == "Fsynced":
            replies = yield from _replies((("CONFIG", "GET", "appendfsync"),))
            setting: Any = replies[0] if isinstance(replies, list) else None
            why = unfit(setting) or (yield from self._answers_early(asked, setting))
        if why:
            raise DelayQError(f"acknowledge {asked.kind}: {why}; nothing was stored")
        self._can_acknowledge = True

    def _answers_early(self, asked: Acknowledge, setting: list[bytes]) -> Operation[str]:
        """Ask for two confirmations in a row: a disk that is synced once a second cannot give the second at once.

        The better of three: a sync may last as long as the time to the next, and a server may be slow to answer.
        """
        if setting[1] != b"everysec":
            return ""
        early = 0
        for tries in range(1, 4):
            early += asked.early((yield from _replies(asked.twice(self._stats))))
            if tries - early == 2:  # noqa: PLR2004 -- of three
                return ""
        return EARLY

    def _refusal(self, task_id: str, outcome: Outcome) -> Refused:
        match outcome:
            case Outcome.EXISTS:
                return TaskExists(task_id)
            case Outcome.IN_FLIGHT:
                return TaskInFlight(task_id)
            case Outcome.FULL:
                return QueueFull(task_id, self.limits.max_length)
        return DelayTooLong(task_id, self.limits.max_delay_seconds * 1000)

    # single tasks

    def cancel(self, task_id: str) -> Operation[Cancelled]:
        """Forget a task that is not running."""
        [outcome] = yield from persistently([self.broker.cancel(checked_id(task_id))])
        return Cancelled(outcome)

    def reschedule(self, task_id: str, delay_ms: int | None, due_ms: int | None) -> Operation[Rescheduled]:
        """Move a task's due time; raises DelayTooLong."""
        moment, limit_ms = when(checked_id(task_id), delay_ms, due_ms), self.limits.max_delay_seconds * 1000
        [done] = yield from persistently([self.broker.reschedule(task_id, moment, max_delay_ms=limit_ms)])
        if done.outcome == "too_far":
            raise DelayTooLong(task_id, limit_ms)
        return done  # type: ignore[no-any-return] # answers travel untyped between a generator and its driver

    def get(self, task_id: str) -> Operation[TaskView | None]:
        """Return everything the queue knows of a task."""
        [view] = yield from persistently([self.broker.get(checked_id(task_id))])
        return view  # type: ignore[no-any-return] # as above

    # whole queue

    def counts(self, horizons_ms: Sequence[int] = (), instants_ms: Sequence[int] = ()) -> Operation[Counts]:
        """Count all shards together."""
        shards = range(len(self.broker.shards))
        found = yield from persistently(
            [self.broker.counts(shard, horizons_ms, instants_ms) for shard in shards]
        )
        return summed(found)

    def page(self, state: State, *, offset: int, limit: int) -> Operation[list[TaskRow]]:
        """Return `limit` tasks of a state by due time (lease expiry, time of death), after skipping `offset`."""
        if state is State.ORPHAN:
            raise ValueError("orphans are in no index that could be listed; the reaper adopts them")
        rows: list[TaskRow] = []
        for shard in range(len(self.broker.shards)):
            rows += yield from self._shard_rows(shard, state, offset + limit)
        rows.sort(key=lambda row: (row.at_ms, row.id))
        return rows[offset : offset + limit]

    def _shard_rows(self, shard: int, state: State, wanted: int) -> Operation[list[TaskRow]]:
        rows: list[TaskRow] = []
        while len(rows) < wanted:
            at, limit = len(rows), min(BATCH, wanted - len(rows))
            [page] = yield from persistently([self.broker.list(shard, state, offset=at, limit=limit)])
            rows += page
            if len(page) < limit:
                break
        return rows


def persistently(calls: list[Call[Any]], behind: Commands = ()) -> Operation[list[Any]]:
    """Yield calls until Redis answers, a few times. They have to be safe to repeat: each try may have been done."""
    asked = Trip(calls, behind) if behind else calls
    for pause in PAUSES_SECONDS:
        try:
            answers: list[Any] = yield asked
        except Unavailable:
            yield pause
        else:
            return answers
    last: list[Any] = yield asked
    return last


def _replies(commands: Commands) -> Operation[list[Any] | DelayQError]:
    """Return what Redis replies to commands of no call, or why it refuses them; what will pass is tried again."""
    try:
        [replies] = yield from persistently([], commands)
    except Unavailable:
        raise
    except DelayQError as error:
        return error
    return replies  # type: ignore[no-any-return] # answers travel untyped between a generator and its driver


def summed(found: Sequence[Counts]) -> Counts:
    """Add up the counts of several shards."""
    if len(found) == 1:
        return found[0]
    oldest = [each.oldest_due_ms for each in found if each.oldest_due_ms is not None]
    following = [each.next_due_ms for each in found if each.next_due_ms is not None]
    names = {name for each in found for name in each.stats}
    return Counts(
        now_ms=max(each.now_ms for each in found),
        delayed=sum(each.delayed for each in found),
        retry=sum(each.retry for each in found),
        processing=sum(each.processing for each in found),
        dlq=sum(each.dlq for each in found),
        overdue=sum(each.overdue for each in found),
        oldest_due_ms=min(oldest, default=None),
        next_due_ms=min(following, default=None),
        due_within={at: sum(each.due_within[at] for each in found) for at in found[0].due_within},
        due_by={at: sum(each.due_by[at] for each in found) for at in found[0].due_by},
        stats={name: sum(each.stats.get(name, 0) for each in found) for name in sorted(names)},
        lapsed=sum(each.lapsed for each in found),
    )
