"""The claim loop: one round trip (an exchange) settles the tasks that ended, and claims tasks into free slots.

There is no other batching. No task waits for a batch to fill: tasks that end during a round trip form the next one.
While more tasks are due, the next exchange is sent before the claimed tasks start, so that Redis and the handlers work
at the same time. Therefore an exchange claims at most half of the slots. If the tasks of the other half have ended by
the next step, a second exchange is sent over a connection of its own: then Redis does not wait for the worker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any

from delayq.errors import Unavailable
from delayq.protocol import scripts
from delayq.protocol.commands import BATCH
from delayq.protocol.results import Settled
from delayq.service import logs
from delayq.worker.exchange import Claim, ClaimConnection, Exchange, Leased, LostClaim, is_lost
from delayq.worker.settlements import Settlement, settle_call
from delayq.worker.slots import OVERLAP_TASKS
from delayq.worker.suspects import IDLE_WORKER_SECONDS, RENEW_SECONDS, RESERVED_MS
from delayq.worker.task_starter import TaskStarter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.results import Claimed
    from delayq.worker.claim_tickets import ClaimTickets
    from delayq.worker.executor import Executor
    from delayq.worker.slots import GroupState

log = logging.getLogger(__name__)

SETTLING = ("ack", "retry", "bury", "release", "park", "end_cancelled", "unclaim")
"""Scripts that are made before any task is claimed: a worker that lacks memory must still settle."""


class ClaimLoop:
    """Repeats exchanges with one shard group."""

    blocks = False

    def __init__(
        self,
        group_state: GroupState,
        commands: Commands,
        connections: Sequence[AsyncConnection],
        runner: Executor,
    ) -> None:
        """Settle and claim over the first connection; over the others when exchanges overlap."""
        self.name = group_state.group.named("claim_loop")
        self._group_state, self._slots = group_state, group_state.slots
        self._commands = commands
        self._connections = [ClaimConnection(each) for each in connections]
        group_state.claims = [each.tickets for each in self._connections]
        self._delivery, self._counters = self._slots.delivery, self._slots.counters
        self._lease_ms = self._delivery.lease_duration_seconds * 1000
        self._block_seconds = self._delivery.max_block_milliseconds / 1000
        self._poll_at = 0.0  # monotonic seconds
        self._backoff = group_state.backoff
        self._exchanges = group_state.exchanges
        self._kept = KeptError()
        self._deep: set[int] = set()  # shards where more tasks were due than their last answered claim took
        self._starter = TaskStarter(group_state, runner)
        self.alarm = group_state.exchange_alarm
        for verb in SETTLING:
            scripts.load(verb)

    async def step(self) -> float:
        """Settle ended tasks and claim into free slots; returns the seconds until the next poll."""
        now, group_state, suspects = time.monotonic(), self._group_state, self._slots.suspects
        if group_state.unstarted:
            self._start()
            self._check()
        self._update_hints(now)
        if self._backoff.refused and not (self._exchanges or group_state.has_work):
            await self._await_refused(now)
        if suspects.waiting and not self._exchanges:  # an error would delay the tasks that it has claimed
            await self._make_room(now)
        if self._exchanges:
            self._send_ahead()
        elif exchange := self._prepare():
            self._exchanges.append(exchange)
        if self._exchanges:
            await self._finish(await self._first_answered())
            self._check()
        elif self._slots.blocked or self._slots.stopped or (group_state.unresponsive and group_state.hinted):
            await self._probe()
        if self._exchanges or group_state.has_work:
            return 0.0
        group_state.listener_paused = True  # listen() wakes it, but not while no slot is free
        self._slots.listen()
        now = time.monotonic()
        pause = min(self._poll_at - now, self._backoff.next_in(now))
        if suspects.waiting and self._slots.open:
            pause = min(pause, suspects.next_in(group_state.group.shards, now))
        return max(0.001, pause)

    def _update_hints(self, now: float) -> None:
        """Hint at all shards when a poll is due, at those whose backoff has ended, and not at those that refuse."""
        if now >= self._poll_at:
            # Wake tokens may be lost: polling at least this often is a promise of the queue.
            self._group_state.hint_all()
            self._poll_at = now + self._block_seconds * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads load
        for shard in self._backoff.due(now):
            self._group_state.try_again(shard)
        refused = self._backoff.refused
        if refused and not self._backoff.all_refused(self._group_state.group.shards):
            for shard in refused:
                # A rejected claim may leave a wake token: claiming because of it would be a busy loop.
                self._slots.hinted.pop(shard, None)

    async def _await_refused(self, now: float) -> None:
        """Wait for the next try within the step if all shards refuse: returning would count as a success in between.

        The alarm may have been rung before, by a hint at a shard that has refused since.
        """
        refuses = self._backoff.all_refused
        try_at = min(self._poll_at, now + self._backoff.next_in(now))
        while refuses(self._group_state.group.shards) and not (
            self._group_state.has_work or self._slots.draining
        ):
            self._update_hints(now := time.monotonic())
            if now >= try_at:
                return
            await self.alarm.wait(try_at - now)

    async def _make_room(self, now: float) -> None:
        """Reserve this worker for suspects that waited too long for an idle worker, or renew the reservation."""
        suspects = self._slots.suspects
        shard = suspects.room_for(self._group_state.group.shards, now) if self._slots.open else None
        if shard is None:
            return
        reserve = self._commands.lock("", suspects.owner, RESERVED_MS, lock="isolation", shard=shard)
        try:
            others_ms, counts = await self._idle[0].connection.run([reserve, self._commands.counts(shard)])
        except BaseException:
            suspects.give_up(shard, now, IDLE_WORKER_SECONDS)
            raise
        if suspects.reserved is None and not others_ms:
            log.info(
                "claims_stopped_for_suspects", extra={"fields": {"shard": shard, "suspects": counts.suspect}}
            )
        suspects.reserve(shard, now, granted=not others_ms)
        suspects.note(shard, counts.suspect, now)

    async def _probe(self) -> None:
        """Send a harmless call when no other is sent: without a free slot, or while the worker may not claim.

        It detects that an unresponsive server serves again, and that Redis is down while the guard breaker is open or
        the queue is suspended.
        """
        shards = self._group_state.group.shards  # none: the shard was removed
        if self._slots.draining or not shards:
            return
        reservation = self._group_state.begin_exchange(0)
        answer: Any = Unavailable("", "cancelled")
        try:
            [answer] = await self._idle[0].answers([self._commands.wake(shards[0])])
        finally:
            self._group_state.end_exchange(reservation, served=not isinstance(answer, Exception))
        self._slots.check_empty()
        if isinstance(answer, Exception):
            raise answer

    def _settlements(self) -> Iterable[tuple[Call[Any], list[Settlement]]]:
        for shard, settlements in self._group_state.outbox.take():
            if self._slots.limited:
                self._slots.hinted.setdefault(shard, self._group_state)
            for at in range(0, len(settlements), BATCH):
                batch = settlements[at : at + BATCH]
                yield settle_call(self._commands, batch, self._delivery.max_attempts), batch

    def _claimed_from(self, over: ClaimConnection) -> Iterable[Claim]:
        """Yield claims for this group's share of the free slots; a claim of suspects is the only one.

        Each claim consumes its shard's hint before it is sent: a hint that arrives meanwhile may be for a task that
        the claim does not return, and must remain.
        """
        if (suspected := self._slots.isolates(self._group_state)) is not None:
            yield self._suspects_of(suspected, over)
            return
        for shard, limit in self._slots.shares(self._group_state):
            del self._slots.hinted[shard]
            ticket = over.ticket()
            call = self._commands.claim(shard, limit, self._lease_ms, ticket=ticket)
            yield Claim(call, shard, limit, ticket)

    def _suspects_of(self, shard: int, over: ClaimConnection) -> Claim:
        """Return the claim of a group of suspects; the worker runs nothing else until they have ended."""
        ticket, limit = over.ticket(), self._slots.free
        call = self._commands.isolate(shard, limit, self._lease_ms, ticket=ticket)
        return Claim(call, shard, limit, ticket, isolated=True)

    def _prepare(self) -> Exchange | None:
        """Return the next exchange, which is sent when its answers are awaited; None if there is nothing to send."""
        outbox = self._group_state.outbox
        waiting = outbox.waiting
        try:
            return self._gather()
        except BaseException:  # for want of memory
            outbox.waiting = waiting
            self._group_state.hint_all()
            raise

    def _gather(self) -> Exchange | None:
        over = self._idle[0]
        settling, claiming = list(self._settlements()), list(self._claimed_from(over))
        lost = [LostClaim(each, *claim) for each in self._group_state.claims for claim in each.lost.items()]
        if not (settling or claiming or lost):
            return None
        calls: list[Call[Any]] = [call for call, _ in settling]
        for tickets, shard, number in lost:  # before new claims, which may then lease the tasks of lost ones
            calls.append(self._commands.unclaim(shard, tickets.claimer, number, self._lease_ms))
        calls += [claim.call for claim in claiming]
        calls += self._wakes(settling, claiming)
        tasks, limit = sum([len(batch) for _, batch in settling]), sum([claim.limit for claim in claiming])
        now, reservation = time.monotonic(), self._group_state.begin_exchange(limit)
        self._group_state.outbox.sent += tasks
        if claiming and claiming[0].isolated:
            self._slots.suspects.begin()
        answering = over.answers(calls)
        return Exchange(over, settling, lost, claiming, reservation, now, answering, bool(self._exchanges))

    def _send(self) -> bool:
        """Send the next exchange, and do not wait for its answers; returns whether there is one."""
        exchange = self._prepare()
        if exchange:
            self._exchanges.append(exchange._replace(answering=asyncio.ensure_future(exchange.answering)))
        return exchange is not None

    def _send_ahead(self) -> None:
        """Send an exchange while another is under way, if it can claim enough tasks where more were due before."""
        group_state = self._group_state
        if (
            not self._deep
            or self._kept.error
            or self._slots.suspects.waiting
            or group_state.lost_claims
            or group_state.unresponsive
        ):
            return  # an unresponsive group has no slots reserved: two claims would be given the same
        able = [each for each in self._idle if each.retry_at <= time.monotonic()]
        if not able or self._slots.free < OVERLAP_TASKS:
            return
        for shard in self._deep.intersection(group_state.group.shards):
            self._slots.hinted.setdefault(shard, group_state)
        self._send()

    @property
    def _idle(self) -> list[ClaimConnection]:
        """The connections without an exchange under way, that with the fewest failures in a row first."""
        busy = [exchange.over for exchange in self._exchanges]
        return sorted(
            [each for each in self._connections if each not in busy], key=lambda each: each.failures
        )

    async def _first_answered(self) -> Exchange:
        """Return the exchange under way to finish next. Tasks of one must not wait for a connection that stalls."""
        if len(self._exchanges) == 1:
            return self._exchanges[0]
        sent = {
            each.answering: each for each in self._exchanges if isinstance(each.answering, asyncio.Future)
        }
        answered = {answering for answering in sent if answering.done()}
        if not answered:
            answered, _ = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
        return next(exchange for answering, exchange in sent.items() if answering in answered)

    async def _finish(self, exchange: Exchange) -> None:
        """Receive the answers of an exchange, send the next one if more tasks are due, and start the claimed tasks."""
        group_state = self._group_state
        try:
            answers = await exchange.answering
            self._exchanges.remove(exchange)
            gone = exchange.reservation.claims_returned  # read once, after the removal: see backup_renewal.py
            settled = [*zip(exchange.settling, answers, strict=False)]
            returned = [*zip(exchange.lost, answers[len(settled) :], strict=False)]
            answered = [*zip(exchange.claiming, answers[len(settled) + len(returned) :], strict=False)]
            errors = [answer for answer in answers if isinstance(answer, Exception)]
            outages = [error for error in errors if is_lost(error)]
            group_state.unstarted += [] if gone else _leased(exchange, answered)
        except BaseException:
            self._lose(exchange)
            raise
        group_state.end_exchange(exchange.reservation, served=not outages)
        for (_, batch), answer in settled:
            group_state.outbox.sent -= len(batch)
            with self._kept:
                self._settled(batch, answer)
        for (tickets, shard, _), answer in returned:
            with self._kept:
                self._returned(tickets, shard, answer)
        for claim, answer in answered:
            with self._kept:
                self._accepted(exchange, claim, answer, gone=gone)
        if errors:
            self._deep.clear()
        try:
            if not (self._kept.error or self._exchanges):
                await self._overlap()
        finally:
            self._start()
        for claim, answer in answered:
            if claim.isolated and not self._slots.running:  # no group was available
                pause = 0.0 if _only_ended(answer) else RENEW_SECONDS
                self._slots.suspects.give_up(claim.shard, time.monotonic(), pause)
        self._slots.offer()  # reserved slots that were not used
        self._slots.check_empty()
        if outages or (errors and self._backoff.all_refused(group_state.group.shards)):
            self._failed(exchange, (outages or errors)[0])

    def _lose(self, exchange: Exchange) -> None:
        """Send the settlements of an exchange again and take its claims back: its answers are not known."""
        group_state = self._group_state
        if exchange in self._exchanges:
            self._exchanges.remove(exchange)
        group_state.end_exchange(exchange.reservation, served=False)
        for claim in exchange.claiming:
            exchange.over.tickets.failed(claim.shard, claim.ticket)
        for _, batch in exchange.settling:
            group_state.outbox.sent -= len(batch)
            group_state.outbox.waiting[:0] = batch

    def _start(self) -> None:
        """Start the tasks of answered claims; those for which memory is lacking stay for the next step."""
        with self._kept:
            while unstarted := self._group_state.unstarted:
                self._starter.start(unstarted[0])
                del unstarted[0]
        if self._kept.error:
            self._deep.clear()
            self._group_state.hint_all()

    def _failed(self, exchange: Exchange, error: Exception) -> None:
        """Suspend overlaps if the connection that they need fails, and another one works. Keep other errors."""
        over = exchange.over
        if not (exchange.ahead and over.failures and any(not each.failures for each in self._connections)):
            self._kept.error = error
            return
        self._counters.redis_errors += 1
        if over.suspend(time.monotonic()):
            log.warning("overlap_stopped", extra={"fields": {"error": str(error) or type(error).__name__}})

    def _check(self) -> None:
        """Raise the last error once no exchange is under way: the loop pauses, and would delay its answer."""
        if self._kept.error is not None and not self._exchanges:
            error, self._kept.error = self._kept.error, None
            raise error

    async def _overlap(self) -> None:
        """Send the next exchange before the claimed tasks start, if more tasks are due and slots are free for them."""
        leases = sum([each.answer.tasks for each in self._group_state.unstarted])
        if not (self._deep and 0 < leases < self._slots.free) or self._slots.suspects.waiting:
            return  # suspects: this worker must come to an end of its exchanges, so that it can make room
        self._slots.reserved += leases
        try:
            if self._send():
                await asyncio.sleep(0)  # so that the connection has its turn before the tasks
        finally:
            self._slots.reserved -= leases

    def _returned(self, tickets: ClaimTickets, shard: int, answer: int | Exception) -> None:
        if is_lost(answer):
            return
        tickets.returned(shard)
        if isinstance(answer, Exception):
            self._refused(shard, answer)
        elif answer:
            log.warning("claim_returned", extra={"fields": {"shard": shard, "tasks": answer}})

    def _wakes(
        self, settling: list[tuple[Call[Any], list[Settlement]]], claiming: list[Claim]
    ) -> Iterable[Call[Any]]:
        """Yield calls that wake other workers where settlements make room under maxInFlight and we do not claim."""
        if self._slots.limited:
            settled = {batch[0].lease.shard for _, batch in settling}
            yield from map(self._commands.wake, settled - {claim.shard for claim in claiming})

    def _settled(self, batch: list[Settlement], answer: list[Settled] | Exception) -> None:
        if is_lost(answer):
            self._group_state.outbox.waiting[:0] = batch
            return
        if isinstance(answer, Exception):
            self._group_state.outbox.refused += batch
            self._refused(batch[0].lease.shard, answer)
            return
        if answer.count(Settled.ACKED) == len(batch):
            self._count(Settled.ACKED, batch)
            return
        for settlement, outcome in zip(batch, answer, strict=True):
            if outcome is Settled.LEASE_LOST and _released_before(settlement):
                continue
            self._count(outcome, [settlement])
            if outcome is not Settled.ACKED:
                self._log_outcome(settlement, outcome)

    def _count(self, outcome: Settled, settlements: list[Settlement]) -> None:
        """Count an outcome of several tasks at once: a counter with an enum as its key is slow."""
        by_kind: dict[str, int] = {}
        for settlement in settlements:
            kind = settlement.lease.task.kind
            by_kind[kind] = by_kind.get(kind, 0) + 1
        self._counters.settled[outcome] += len(settlements)
        for kind, tasks in by_kind.items():
            if kind:
                self._counters.kinds[kind].settled[outcome] += tasks

    def _log_outcome(self, settlement: Settlement, outcome: Settled) -> None:
        if outcome is Settled.LEASE_LOST:
            task = settlement.lease.task
            fields = logs.of_task(task) | {"token": task.token, "verb": settlement.verb}
            log.warning("lease_lost", extra={"fields": fields})
        elif outcome is Settled.BURIED:
            log.warning("buried", extra={"fields": _death(settlement)})
        elif outcome is Settled.SUPERSEDED:
            self._count(Settled.BURIED, [settlement])  # in metrics, too
            log.warning("dead_letter_replaced", extra={"fields": _death(settlement)})
        elif outcome is Settled.CANCELLED:
            log.info("run_cancelled", extra={"fields": _cancelled_run(settlement)})

    def _accepted(self, exchange: Exchange, claim: Claim, answer: Claimed | Exception, *, gone: bool) -> None:
        """Record the result of a claim; `gone`: its tasks were returned meanwhile, if it has leased some."""
        if is_lost(answer) or gone:
            exchange.over.tickets.failed(claim.shard, claim.ticket)
        elif isinstance(answer, Exception):
            self._refused(claim.shard, answer)
            return
        else:
            exchange.over.tickets.replied(answer.now_ms, exchange.sent_at)
            if not answer.abandoned:
                self._note(exchange, claim.shard, answer)
                return
            if claim.ticket.number:
                log.info("claim_abandoned", extra={"fields": {"shard": claim.shard}})
        self._slots.hinted.setdefault(claim.shard, self._group_state)

    def _note(self, exchange: Exchange, shard: int, answer: Claimed) -> None:
        self._deep.discard(shard)
        if answer.more:
            self._deep.add(shard)
            self._slots.hinted.setdefault(shard, self._group_state)
        made_room = self._slots.limited and exchange.settles(shard)
        self._backoff.note(shard, answer, time.monotonic(), made_room=made_room)
        if answer.suspects or self._slots.suspects.waiting:
            self._note_suspects(shard, answer)

    def _note_suspects(self, shard: int, answer: Claimed) -> None:
        self._slots.suspects.note(shard, answer.suspects, time.monotonic())
        if self._slots.suspects.running and answer.tasks:
            fields = {"shard": shard, "tasks": answer.tasks, "left": answer.suspects}
            log.info("suspects_isolated", extra={"fields": fields})

    def _refused(self, shard: int, error: Exception) -> None:
        """Back off from a shard that rejects calls, without affecting others."""
        times = self._backoff.refuse(shard, time.monotonic())
        if times & (times - 1) == 0:  # the 1st, 2nd, 4th, … in a row
            fields = {"shard": shard, "error": str(error), "times": times}
            log.warning("shard_refused", extra={"fields": fields})


def _leased(exchange: Exchange, answered: Iterable[tuple[Claim, Claimed | Exception]]) -> list[Leased]:
    return [
        Leased(answer, exchange.sent_at, claim.isolated)
        for claim, answer in answered
        if not isinstance(answer, Exception) and not answer.abandoned
    ]


class KeptError:
    """The last error of blocks, such as one for want of memory. What else an answer brought must not be lost."""

    error: Exception | None = None

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        """Keep the error."""
        if isinstance(error, Exception):
            self.error = error
        return isinstance(error, Exception)


def _released_before(settlement: Settlement) -> bool:
    """Return whether backup_renewal.py has released this task at the same time; it has counted that."""
    return settlement.verb == "release" and settlement.running is not None and settlement.running.handed_back


def _death(settlement: Settlement) -> dict[str, object]:
    """Return the log fields of a new dead letter."""
    task, reason = settlement.lease.task, "attempts" if settlement.verb == "retry" else "buried"
    return logs.of_task(task) | {"attempt": task.attempt, "reason": reason}


def _cancelled_run(settlement: Settlement) -> dict[str, object]:
    """Return the log fields of a task that ended as cancelled; `verb`: its run ended before it could be cancelled."""
    task, verb = settlement.lease.task, settlement.verb
    fields: dict[str, object] = {"attempt": task.attempt}
    if verb != "end_cancelled":
        fields["verb"] = verb
    elif settlement.arguments:
        fields["error"] = settlement.arguments[0]
    return logs.of_task(task) | fields


def _only_ended(answer: Claimed | Exception) -> bool:
    """Return whether a claim of suspects leased none because those it examined had ended, and others remain."""
    return not isinstance(answer, Exception) and not answer.leases and not answer.held and answer.suspects > 0
