"""Storing any number of tasks, each once: where they belong, what was refused, confirmed, or has to be sent again.

Generators, as in operations.py.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from delayq.client.confirmation import Confirmation
from delayq.client.encoding import Chunk, TaskEncoder, due_ms_of
from delayq.client.placement import Onward, Placement
from delayq.client.routing import (
    AGAIN_SECONDS,
    PAUSES_SECONDS,
    TRIES,
    Each,
    Operation,
    ShardRouter,
    still_migrating,
)
from delayq.errors import (
    DelayQError,
    DelayTooLong,
    NotConfirmed,
    QueueFull,
    Refused,
    TaskExists,
    Unavailable,
)
from delayq.protocol.quota import most_bytes, room
from delayq.protocol.results import Outcome, Scheduled
from delayq.protocol.write_durability import Shortfall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from delayq.client.encoding import NewTask, Prepared
    from delayq.contract import Limits
    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.replies import Stored
    from delayq.protocol.write_durability import ConfirmCommands, Durability

REFUSALS = frozenset({Outcome.EXISTS, Outcome.FULL, Outcome.HEAVY, Outcome.TOO_FAR})
ONWARD = frozenset({Outcome.ELSEWHERE, Outcome.MOVING})
IfExists = Literal["reject", "keep", "replace", "debounce"]

log = logging.getLogger(__name__)

HOPS = 3  # redirects of a task without a pause: the shard map may change meanwhile
CONFIRMED_CHUNKS = 8  # that share one confirmation, which may take a second with appendfsync everysec


class Start(NamedTuple):
    """Send these calls; the result is a ticket. The caller continues while Redis works."""

    calls: list[Call[Any]]
    confirm: ConfirmCommands | None = None


class Finish(NamedTuple):
    """Return the results of the calls of this ticket, with errors as values, and their confirmation; as Each."""

    ticket: Any


@dataclass
class Left:
    """The tasks of a round trip that are not stored yet."""

    lost: list[Chunk] = field(default_factory=list)  # the reply was lost: they may be stored
    stale: list[Chunk] = field(default_factory=list)  # rejected: the shard has a newer shard map
    onward: list[Onward] = field(default_factory=list)
    outage: Exception | None = None  # the reason to wait before the next try


@dataclass
class Results:
    """The results of schedule_many so far, by position."""

    stored: dict[int, Scheduled] = field(default_factory=dict)
    refused: dict[int, Refused] = field(default_factory=dict)
    unconfirmed: list[int] = field(default_factory=list)
    shortfall: Shortfall | None = None  # the first

    @property
    def scheduled(self) -> list[Scheduled]:
        """The stored tasks, in the order given."""
        return [self.stored[at] for at in sorted(self.stored)]

    def confirm(self, asked: Durability, replies: object, new: list[int]) -> None:
        """Record the confirmations of the tasks at these positions."""
        confirmed = asked.confirmed(replies)
        if confirmed >= asked.wanted:
            return
        self.unconfirmed += new
        if self.shortfall is None:
            why = str(replies) if isinstance(replies, DelayQError) else ""
            self.shortfall = Shortfall(asked, confirmed, why)

    def one(self) -> Scheduled:
        """Return the one stored task; raises why it was refused or not confirmed."""
        if self.refused:
            raise self.refused[0]
        self.check_confirmed()
        return self.stored[0]

    def check_confirmed(self) -> None:
        """Raise NotConfirmed if some stored tasks were not confirmed."""
        if self.shortfall is not None and self.unconfirmed:
            unconfirmed = [self.stored[at] for at in sorted(self.unconfirmed)]
            raise NotConfirmed(
                self.shortfall.message([each.id for each in unconfirmed]),
                scheduled=self.scheduled,
                unconfirmed=unconfirmed,
                refused=dict(sorted(self.refused.items())),
                confirmed=self.shortfall.confirmed,
                wanted=self.shortfall.asked.wanted,
            )


class TaskWriter:
    """Stores the tasks of one queue, within its limits."""

    def __init__(
        self,
        commands: Commands,
        homes: ShardRouter,
        limits: Limits,
        durability: Durability | None = None,
        *,
        deadline_ms: int | None = None,
    ) -> None:
        """`limits` come from spec.limits, `durability` from spec.durability, the deadline from spec.delivery."""
        self._commands, self._router, self._limits = commands, homes, limits
        self._placement = Placement(commands, homes)
        self._confirming = Confirmation(commands, durability) if durability else None
        self.encoder = TaskEncoder(limits, deadline_ms)

    def chunk(self, task: NewTask, if_exists: IfExists) -> Chunk:
        """Return a chunk of this task alone; Refused if it is malformed or too large."""
        return self.encoder.chunk(task, self._commands.shard_map, debounces=if_exists == "debounce")

    @property
    def confirms(self) -> bool:
        """Whether each round trip waits for a confirmation."""
        return self._confirming is not None

    def check(self) -> Operation[None]:
        """Check that the servers of all shards can confirm writes; DelayQError if not."""
        if self._confirming is not None:
            pinned = yield from self._router.fetch_shard_map()
            yield from self._confirming.check(range(pinned.shard_map.shards), so="")

    def store(
        self,
        chunk: Chunk,
        if_exists: IfExists,
        results: Results | None = None,
        recorded: Callable[[], None] | None = None,
    ) -> Operation[Results]:
        """Store one chunk. Unlike many(), this needs no two round trips under way.

        `recorded` is called after each round trip. `results` has the results so far then, and also if this raises.
        """
        _check(if_exists)
        results = Results() if results is None else results
        chunks = yield from self._ready([chunk])
        yield from self._collect(self._each(chunks, if_exists, results), chunks, if_exists, results, recorded)
        return results

    def many(self, tasks: Iterable[NewTask | Prepared], if_exists: IfExists) -> Operation[Results]:
        """Store any number of tasks, a chunk per round trip; the next chunk is encoded while Redis stores this one."""
        _check(if_exists)
        results, in_flight = Results(), None
        try:
            encoded = self.encoder.chunks(
                *(tasks, results.refused, self._placement.shard_map), debounces=if_exists == "debounce"
            )
            together = CONFIRMED_CHUNKS if self._confirming else 1
            while assumed := tuple(islice(encoded, together)):
                chunks = yield from self._ready(assumed)
                request = self._each(chunks, if_exists, results)
                ticket = yield Start(request.calls, request.confirm)
                earlier, in_flight = in_flight, (Finish(ticket), chunks)
                if earlier:
                    yield from self._collect(*earlier, if_exists, results)
        except Exception:  # also from `tasks` itself; the reply to the sent chunk must still be read
            if in_flight:
                with suppress(DelayQError):
                    yield in_flight[0]
            raise
        if in_flight:
            yield from self._collect(*in_flight, if_exists, results)
        return results

    def _ready(self, assumed: Sequence[Chunk]) -> Operation[Sequence[Chunk]]:
        """Return chunks by their shards, after checking that the servers can confirm them."""
        if self._confirming and not self._router.is_cluster:
            yield from self._confirming.check([0])
        chunks = yield from self._placement.placed(assumed)
        # In a Cluster, check only the nodes of these chunks: other nodes may be unavailable.
        if self._confirming and self._router.is_cluster:
            yield from self._confirming.check(chunk.shard for chunk in chunks)
        return chunks

    def _store(self, chunk: Chunk, if_exists: IfExists) -> Call[Stored]:
        return self._commands.pinned_to(chunk.shard_map).schedule(
            *(chunk.shard, chunk.flat),
            passing=chunk.passing,
            if_exists=if_exists,
            repeated=int(chunk.doubtful),
            **self._options(chunk),
        )

    def _each(self, chunks: Sequence[Chunk], if_exists: IfExists, results: Results) -> Each:
        """Return the calls of one round trip. Their confirmation does not wait if one has failed already."""
        confirm = None
        if self._confirming is not None:
            confirm = self._confirming.confirm_commands(hurry=results.shortfall is not None)
        return Each([self._store(chunk, if_exists) for chunk in chunks], confirm)

    def _collect(  # noqa: PLR0917 -- the state of one request
        self,
        asked: Finish | Each,
        chunks: Sequence[Chunk],
        if_exists: IfExists,
        results: Results,
        recorded: Callable[[], None] | None = None,
    ) -> Operation[None]:
        """Record the result of each chunk; send again tasks that belong to another shard, or whose reply was lost.

        A task with a result is never sent again: it may have run by now, and would run twice.
        """
        outages, sent_on = iter((0.0, *PAUSES_SECONDS)), 0
        while True:
            left = yield from self._record_all(chunks, (yield from _answers(asked, chunks)), results)
            if recorded:
                recorded()
            if not (left.lost or left.stale or left.onward):
                return
            if left.outage:
                pause = next(outages, None)
                if pause is None:
                    raise left.outage
                yield pause
            if left.onward:
                sent_on += 1
                if sent_on > TRIES:
                    raise still_migrating(left.onward[0].chunk.flat[0])
                if sent_on > HOPS:
                    yield AGAIN_SECONDS
            again = yield from self._placement.again(left.stale, left.onward)
            chunks = yield from self._placement.placed([*left.lost, *again])
            asked = self._each(chunks, if_exists, results)

    def _record_all(self, chunks: Sequence[Chunk], answers: list[Any], results: Results) -> Operation[Left]:
        """Record stored, confirmed and refused tasks; returns the rest. Raises errors that a retry cannot resolve."""
        left, stored, refusal = Left(), list[Chunk](), None
        for chunk, answer in zip(chunks, answers, strict=False):
            if self._placement.refused(answer):
                left.stale.append(chunk)
                if self._placement.unsettled(chunk, answer):
                    left.outage = answer
            elif isinstance(answer, Unavailable):
                left.lost.append(chunk._replace(doubtful=True))
                left.outage = answer
            elif isinstance(answer, Exception):
                refusal = refusal or answer
            else:
                left.onward.extend(self._record(chunk, answer, results))
                stored.append(chunk)
        if refusal:
            raise refusal
        if self._confirming and stored:
            # After a lost reply, the common confirmation says nothing about the other servers.
            if left.lost:
                shards, hurry = [chunk.shard for chunk in stored], results.shortfall is not None
                replies = yield from self._confirming.again(shards, hurry=hurry)
            else:
                replies = answers[-1]
            new = [at for chunk in stored for at in chunk.positions if at in results.stored]
            results.confirm(self._confirming.asked, replies, new)
        return left

    def _record(self, chunk: Chunk, done: Stored, results: Results) -> Iterator[Onward]:
        """Record the result of each task; yield those that must be stored in another shard."""
        if done.clamped:
            log.warning(
                "due_time_clamped", extra={"fields": {"tasks": done.clamped, "queue": self._commands.queue}}
            )
        flat, elsewhere, moving = chunk.flat, [], []
        for nth, at in enumerate(chunk.positions):
            task_id, moment = flat[3 * nth], flat[3 * nth + 1]
            outcome = done.notes.get(nth, Outcome.CREATED) if done.notes else Outcome.CREATED
            if outcome in REFUSALS:
                results.refused[at] = self._refusal(task_id, outcome)
            elif outcome in ONWARD:
                elsewhere.append(nth)
                moving += [task_id] if outcome is Outcome.MOVING else []
            else:
                due_ms = done.due_ms.get(nth) or due_ms_of(moment, done.now_ms)
                results.stored[at] = Scheduled(task_id, due_ms, outcome)
        if elsewhere:
            yield Onward(chunk.some(elsewhere), moving)

    def _options(self, chunk: Chunk) -> dict[str, Any]:
        """Return the limits for one shard."""
        parts = chunk.shard_map.quota_shards(chunk.shard)
        return {
            **room(self._limits, parts),
            "max_delay_ms": self._limits.max_delay_seconds * 1000,
        }

    def _refusal(self, task_id: str, outcome: Outcome) -> Refused:
        shards = self._commands.shard_map.shards
        match outcome:
            case Outcome.EXISTS:
                return TaskExists(task_id)
            case Outcome.FULL:
                return QueueFull(task_id, self._limits.max_length, shards=shards)
            case Outcome.HEAVY:
                return QueueFull(task_id, most_bytes(self._limits, shards), "bytes", shards=shards)
        return DelayTooLong(task_id, self._limits.max_delay_seconds * 1000)


def _check(if_exists: str) -> None:
    if if_exists not in ("reject", "keep", "replace", "debounce"):
        raise ValueError(f'if_exists: expected "reject", "keep", "replace" or "debounce", got {if_exists!r}')


def _answers(asked: Finish | Each, chunks: Sequence[Chunk]) -> Operation[list[Any]]:
    """Return the results of the chunks; the error of a failed round trip is the result of all."""
    try:
        answers: list[Any] = yield asked
    except Unavailable as error:
        return [error] * (len(chunks) + 1)
    return answers
