"""Extends the leases of running tasks at a third of their duration, and cancels handlers that exceed their timeout."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm
from delayq.protocol.commands import BATCH
from delayq.service import logs

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import Extended
    from delayq.worker.executor import Executor
    from delayq.worker.slots import GroupState, Running

log = logging.getLogger(__name__)

CLEANUP_SECONDS = 6.0
"""For how long a cancelled handler keeps its task, so that no second run overlaps: more than the 5 s between SIGTERM
and SIGKILL of an exec handler."""


class LeaseRenewal:
    """Checks every running task of one shard group at least once a second."""

    blocks = False

    def __init__(
        self, group_state: GroupState, commands: Commands, connection: AsyncConnection, runner: Executor
    ) -> None:
        """Watch the running tasks of `group_state`; `runner` returns the settlement of an abandoned handler."""
        self.name = group_state.group.named("lease_renewal")
        self._group_state, self._commands, self._connection, self._runner = (
            group_state,
            commands,
            connection,
            runner,
        )
        self._lease_seconds, self._counters = (
            group_state.slots.delivery.lease_duration_seconds,
            group_state.slots.counters,
        )
        self.alarm = Alarm()

    async def step(self) -> float:
        """Check every running task once; raises the first shard's error after all shards are done."""
        now = time.monotonic()
        self._enforce_timeouts(now)
        self._give_up(now)
        for answer in await self._extend_leases(now):
            if isinstance(answer, Exception):
                raise answer
        return min(1.0, self._lease_seconds / 6)

    def _enforce_timeouts(self, now: float) -> None:
        for running in self._group_state.running.values():
            if running.deadline > now:
                if self._runner.uniform:
                    break  # in the order of their start, and so of their deadlines
                continue
            if running.cancelled_for is None:
                self._counters.handler_timeouts += 1
                running.cancel("timeout")

    def _give_up(self, now: float) -> None:
        """Settle the tasks of handlers that ignore their cancellation, as if they had ended.

        Only the slot stays in use. Otherwise the lease would expire and make the task a suspect, and this worker could
        run no suspects, because they need a worker that runs nothing else.
        """
        for running in [each for each in self._group_state.running.values() if self._is_over(each, now)]:
            log.error("cancellation_ignored", extra={"fields": logs.of_task(running.lease.task)})
            self._group_state.give_up(running, self._runner.abandoned(running))

    def _is_over(self, running: Running, now: float) -> bool:
        """Whether the cleanup time of a cancelled handler is over."""
        if running.cancelled_for == "timeout":
            return now >= running.deadline + CLEANUP_SECONDS
        if running.cancelled_for == "requested" and running.interrupted:
            return now >= running.requested_at + CLEANUP_SECONDS
        if running.cancelled_for == "lease_lost" and running.interrupted:
            return now >= running.extended_at + self._lease_seconds + CLEANUP_SECONDS
        return False

    async def _extend_leases(self, now: float) -> list[Extended | Exception]:
        due: dict[int, list[Running]] = {}
        for running in self._group_state.running.values():
            if now - running.extended_at >= self._lease_seconds / 3 and running.cancelled_for != "lease_lost":
                due.setdefault(running.lease.shard, []).append(running)
        batches = [
            (shard, held[at : at + BATCH]) for shard, held in due.items() for at in range(0, len(held), BATCH)
        ]
        if not batches:
            return []
        calls = [
            self._commands.extend(shard, [each.lease.member for each in held], self._lease_seconds * 1000)
            for shard, held in batches
        ]
        # An error of one shard must not hide the lost leases of other shards.
        answers: list[Extended | Exception] = await self._connection.answers(calls)
        for (_, held), answer in zip(batches, answers, strict=True):
            if not isinstance(answer, Exception):
                self._extended(held, answer.lost, now)
                self._cancel([held[at] for at in sorted(answer.cancelled)])
        return answers

    def _extended(self, held: list[Running], lost: set[int], now: float) -> None:
        self._counters.extended += len(held) - len(lost)
        for at, running in enumerate(held):
            if at not in lost:
                running.extended_at = now
            elif running.lease.member in self._group_state.running:
                self._counters.leases_lost += 1
                fields = logs.of_task(running.lease.task) | {"verb": "extend"}
                log.warning("lease_lost", extra={"fields": fields})
                running.cancel("lease_lost")

    def _cancel(self, asked: list[Running]) -> None:
        """Cancel runs that cancel(running=True) asked to cancel."""
        for running in asked:
            if running.cancelled_for is None and running.lease.member in self._group_state.running:
                running.requested_at = time.monotonic()
                running.cancel("requested")
                fields = logs.of_task(running.lease.task) | {"attempt": running.lease.task.attempt}
                log.info("cancellation_requested", extra={"fields": fields})
