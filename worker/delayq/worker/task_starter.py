"""What becomes of claimed tasks: each starts in a free slot, alone or in a call of its kind, or goes back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from delayq.worker.batches import Call
from delayq.worker.settlements import Settlement, of_unreadable
from delayq.worker.slots import Running

if TYPE_CHECKING:
    from delayq.handlers.base import Batch
    from delayq.protocol.results import Lease
    from delayq.worker.exchange import Leased
    from delayq.worker.executor import Executor
    from delayq.worker.slots import GroupState

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0  # between two lines about parked tasks of one kind
FURTHER_SECONDS = 1.0  # and of two kinds: one line for all that were parked since
MOST_KINDS = 1000  # to remember


class TaskStarter:
    """Starts the tasks of one shard group."""

    def __init__(self, group_state: GroupState, runner: Executor) -> None:
        """`runner` runs them."""
        self._group_state, self._slots, self._runner = group_state, group_state.slots, runner
        self._counters = self._slots.counters
        self._parked: Counter[tuple[str, int]] = Counter()  # since the last line of the log
        self._parked_logged: dict[tuple[str, int], float] = {}
        self._parked_logged_at = float("-inf")
        self._loop = asyncio.get_running_loop()

    def start(self, leased: Leased) -> None:
        """Start tasks, for as many as slots are free, and release the others. After an error, another call goes on."""
        if self._counters.first_claim is None:
            # By the local clock, not by Redis': compared with the pod's creation.
            self._counters.first_claim = time.time()
        leases, unreadable = leased.answer.decoded()
        parked = self._start_each(leased, leases)
        if self._runner.batches and (leased.isolated or self._slots.full):
            self._slots.begin_calls()
        if unreadable:
            self._group_state.outbox.waiting += of_unreadable(leased.answer)
        self._counters.claimed += len(leases)
        if parked and time.monotonic() - self._parked_logged_at >= FURTHER_SECONDS:
            self._log_parked(time.monotonic())

    def _room(self, *, isolated: bool) -> int:
        """Return how many tasks can run: none if the worker drains, or if other shard groups use the slots now."""
        late = self._slots.draining or isolated != self._slots.suspects.running
        return 0 if late else max(0, self._slots.free)

    def _start_each(self, leased: Leased, leases: list[Lease]) -> bool:
        """Start, park or release each task; returns whether some were parked."""
        runner, observe, now_ms = self._runner, self._counters.due_to_claimed.observe, leased.answer.now_ms
        batches, uniform, all_known = runner.batches, runner.uniform, runner.kinds is None
        room, parked = leased.done + self._room(isolated=leased.isolated), False
        now = time.monotonic()
        deadline = now + self._slots.delivery.handler_timeout_seconds
        for lease in leases[leased.done :]:
            task = lease.task
            # Made before the start: if it lacked memory afterwards, the task would start again.
            done = leased.done + 1
            if not all_known and not runner.can_run(task):
                self._park(lease)
                parked, room = True, room + 1
            elif done > room:
                self._group_state.outbox.waiting.append(Settlement("release", lease, (task.due_ms,)))
            else:
                # Not for a released task: it counts when it is claimed again and starts.
                observe((now_ms - task.due_ms) / 1000)
                if batches and (batch := batches.get((task.kind, task.kind_version))):
                    self._join(lease, batch, leased.sent_at)
                else:
                    if not uniform:
                        deadline = now + runner.policy(task).handler_timeout_seconds
                    self._group_state.begin(Running(lease, leased.sent_at, deadline), self._run)
            leased.done = done
        return parked

    def _park(self, lease: Lease) -> None:
        self._group_state.outbox.waiting.append(Settlement("park", lease))
        self._parked[lease.task.kind, lease.task.kind_version] += 1

    def _log_parked(self, now: float) -> None:
        """Write one line about all kinds that had none in the last minute: its fields name the one with most tasks."""
        logged = self._parked_logged
        due = [
            (kind, count)
            for kind, count in self._parked.most_common()
            if now - logged.get(kind, float("-inf")) >= LOG_SECONDS
        ]
        if not due:
            return
        (name, version), count = due[0]
        fields: dict[str, object] = {"kind": name or "no kind", "version": version, "tasks": count}
        if len(due) > 1:
            fields |= {"other_kinds": len(due) - 1, "other_tasks": sum(count for _, count in due[1:])}
        log.warning("kind_unknown", extra={"fields": fields})
        if len(logged) > MOST_KINDS:
            logged.clear()
        for kind, _ in due:
            logged[kind] = now
            del self._parked[kind]
        self._parked_logged_at = now

    def _join(self, lease: Lease, batch: Batch, sent_at: float) -> None:
        """Add a task to the call of its kind that has not begun, or to a new one.

        A call begins after all answers of this exchange were processed, so its tasks are those that came together.
        """
        task, size = lease.task, self._runner.size(lease, batch)
        key = task.kind, task.kind_version, size
        call = self._group_state.filling.get(key)
        if call is None or not call.takes(lease):
            if call is not None:
                call.begin()
            call = Call(batch, size)
            call.handling = self._loop.create_task(self._run_batch(call))
            call.handling.add_done_callback(partial(self._batch_ended, key, call))
            self._group_state.filling[key] = call
        member = call.add(lease, sent_at)
        try:
            self._group_state.begin(member)
        except BaseException:  # for want of memory
            call.members.remove(member)
            raise

    async def _run_batch(self, call: Call) -> None:
        await call.filled()
        self._group_state.all_ended(await self._runner.run_batch(call))

    def _batch_ended(self, key: tuple[str, int, int], call: Call, handling: asyncio.Task[None]) -> None:
        """End the runs that `_run_batch` did not end: it may be cancelled before it calls the handler."""
        if self._group_state.filling.get(key) is call:
            del self._group_state.filling[key]
        if handling.cancelled() or (error := handling.exception()) is not None:
            error = asyncio.CancelledError() if handling.cancelled() else error
            for member in call.members:
                if member.lease.member in self._slots.running:
                    self._group_state.ended(member, self._runner.settlement(member, error))
        call.members = []  # which refer to the call: they would stay until the garbage collector finds them

    async def _run(self, running: Running) -> None:
        try:
            settlement = await self._runner.run(running)
        except BaseException as error:  # noqa: BLE001 -- an error of ours must not cost the slot
            settlement = self._runner.settlement(running, error)
        self._group_state.ended(running, settlement)
