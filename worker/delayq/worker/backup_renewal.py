"""What happens to the leases of a worker while a coroutine handler blocks its event loop.

Runs in the thread of loop_watch.py, in an event loop and over a connection of its own. It renews the leases of running
tasks, and of results that wait to be sent, as long as the task may run; it releases tasks that have not begun after one
lease. It reads the worker's state, and marks what the loop must not begin, without a lock: the thread sets
`handed_back` and then reads `begun_at`; the loop sets `begun_at` and then reads `handed_back`. So if the thread reads
that a task has not begun, the loop will not begin it. `claims_returned` works in the same way. If both have seen the
other's mark, the loop releases the task: the token of a lease makes it harmless that it does so twice.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delayq.connection import AsyncConnection
from delayq.handlers.failures import stack_of
from delayq.protocol.alarm import Alarm
from delayq.protocol.commands import BATCH
from delayq.service import logs
from delayq.worker.lease_renewal import CLEANUP_SECONDS
from delayq.worker.settlements import Settlement

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from delayq.connection import Address
    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.results import Extended, Settled
    from delayq.worker.executor import Executor
    from delayq.worker.slots import Running, Slots

    Held = Running | Settlement
    Request = tuple[Call[Any], Callable[[Any], None]]  # and what to do with its answer

T = TypeVar("T", bound="Held")

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS: Final = 5.0


class BackupRenewal:
    """The stand-in of a worker's event loop."""

    name, blocks = "backup_renewal", False

    def __init__(self, slots: Slots, commands: Commands, address: Address, runner: Executor) -> None:
        """Connect nothing before the first lease is half over."""
        self._slots, self._commands, self._address, self._runner = slots, commands, address, runner
        self.counters = slots.counters
        self._lease_seconds = slots.delivery.lease_duration_seconds
        self.pause_seconds = min(LONGEST_PAUSE_SECONDS, self._lease_seconds / 6)
        self._connection: AsyncConnection | None = None
        self.alarm = Alarm()

    def begin(self, loop: asyncio.AbstractEventLoop, since: float) -> None:
        """See StandIn."""
        self._loop, self._waits_until = loop, since + self._lease_seconds

    @property
    def keeps_until(self) -> float:
        """See StandIn."""
        return max([self._waits_until, *map(self._until, self._held())])

    def _held(self) -> Iterator[Held]:
        """Yield tasks that run or wait for their start, and settlements that Redis may not have."""
        yield from list(self._slots.running.values())
        for state in list(self._slots.group_states):
            sent = (batch for exchange in list(state.exchanges) for _, batch in exchange.settling)
            yield from [*state.outbox.waiting, *state.outbox.refused, *chain.from_iterable(sent)]

    def _until(self, held: Held) -> float:
        """Return until when a lease is renewed: its task, or the task's result, has no claim to more."""
        running = held.running if isinstance(held, Settlement) else held
        if running is None or not running.started_at:
            return self._waits_until
        seconds = self._runner.policy(running.lease.task).handler_timeout_seconds
        return running.started_at + seconds + CLEANUP_SECONDS

    async def step(self) -> float:
        """Renew leases that are half over, return tasks that have waited for one lease. Raises the first error."""
        now = time.monotonic()
        requests = [*self._extensions(now), *self._releases(now), *self._unclaims(now)]
        if not requests:
            return self.pause_seconds
        if self._connection is None:
            self._connection = AsyncConnection(self._address)
        note = self._commands.note_blocked(0)
        calls: list[Call[Any]] = [call for call, _ in requests]
        answers = (await self._connection.answers([*calls, note]))[
            : len(requests)
        ]  # the note is not important
        for (_, receive), answer in zip(requests, answers, strict=True):
            if not isinstance(answer, Exception):
                receive(answer)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return self.pause_seconds

    def _extensions(self, now: float) -> Iterator[Request]:
        half = now - self._lease_seconds / 2
        kept = [each for each in self._held() if _renewed_at(each) <= half and self._until(each) > now]
        for shard, batch in _batches(kept):
            members = [each.lease.member for each in batch]
            call = self._commands.extend(shard, members, self._lease_seconds * 1000)
            yield call, partial(self._extended, batch, now)

    def _extended(self, batch: list[Held], now: float, answer: Extended) -> None:
        """Cancel no run: a blocked event loop could not; its own renewal does so afterwards."""
        lost = answer.lost
        for at, held in enumerate(batch):
            running = held.running if isinstance(held, Settlement) else held
            if running is not None and at not in lost:
                running.extended_at = now
            elif running is not None and _withheld(running):
                running.cancelled_for = "lease_lost"
        self._count(self._count_extended, len(batch) - len(lost))

    def _releases(self, now: float) -> Iterator[Request]:
        """Yield what releases the tasks that have not begun, once they have waited for one lease."""
        if now < self._waits_until:
            return
        running = [each for each in list(self._slots.running.values()) if each.cancelled_for != "lease_lost"]
        for shard, batch in _batches(filter(_withheld, running)):
            flat = [argument for each in batch for argument in (each.lease.member, each.lease.task.due_ms)]
            yield self._commands.release(shard, flat), partial(self._released, batch)

    def _released(self, batch: list[Running], outcomes: list[Settled]) -> None:
        for running in batch:
            running.cancelled_for = "lease_lost"  # the loop has nothing to settle
        log.warning(
            "tasks_handed_back", extra={"fields": {"tasks": len(batch), "because": "event_loop_blocked"}}
        )
        self._count(self._count_settled, batch, outcomes)

    def _unclaims(self, now: float) -> Iterator[Request]:
        """Yield requests that return the tasks of claims with unread answers, whose leases nothing renews."""
        half = now - self._lease_seconds / 2
        lease_ms = self._lease_seconds * 1000
        for state in list(self._slots.group_states):
            for each in [each for each in list(state.exchanges) if each.claiming and each.sent_at <= half]:
                each.reservation.claims_returned = True
                if each in state.exchanges:
                    for claim in each.claiming:
                        claimer, number = each.over.tickets.claimer, claim.ticket.number
                        yield self._commands.unclaim(claim.shard, claimer, number, lease_ms), _log_returned

    def _count(self, count: Callable[..., None], *what: object) -> None:
        """Let the event loop count, as it alone changes the counters."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(count, *what)

    def _count_extended(self, leases: int) -> None:
        self.counters.extended += leases

    def _count_settled(self, batch: list[Running], outcomes: list[Settled]) -> None:
        for running, outcome in zip(batch, outcomes, strict=True):
            self.counters.settled[outcome] += 1
            if kind := running.lease.task.kind:
                self.counters.kinds[kind].settled[outcome] += 1

    def culprit(self, task: asyncio.Task[Any] | None, frame: FrameType | None) -> dict[str, object]:
        """See StandIn: the task whose handler blocks, and where."""
        for each in list(self._slots.running.values()):
            if task is not None and task is (each.handling if each.call is None else each.call.handling):
                return logs.of_task(each.lease.task) | {"stack": stack_of(frame)}
        return {"stack": stack_of(frame)}

    async def close(self) -> None:
        """See StandIn."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _renewed_at(held: Held) -> float:
    """Return when a lease was renewed, inf if nothing is left to renew, and -inf if it is not known."""
    running = held.running if isinstance(held, Settlement) else held
    if running is None:
        return float("-inf")
    return float("inf") if running.cancelled_for == "lease_lost" else running.extended_at


def _withheld(running: Running) -> bool:
    """Keep a task from its start; returns whether it has not begun."""
    running.handed_back = True
    return not running.started_at


def _batches(held: Iterable[T]) -> Iterator[tuple[int, list[T]]]:
    """Yield shards, each with as many of its leases as one call can carry."""
    by_shard = defaultdict[int, list[T]](list)
    for each in held:
        by_shard[each.lease.shard].append(each)
    for shard, leases in by_shard.items():
        yield from ((shard, leases[at : at + BATCH]) for at in range(0, len(leases), BATCH))


def _log_returned(tasks: int) -> None:
    if tasks:
        log.warning("claim_returned", extra={"fields": {"tasks": tasks}})
