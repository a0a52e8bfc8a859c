"""A client's operations without I/O: generators that yield calls (or seconds to pause) and receive the replies.

Client and SyncClient drive the same generators; they differ only in their I/O.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from delayq.client.bulk import BulkOperations, check_selection
from delayq.client.encoding import EXACT, check_times, check_whole, checked_list, stored_id, when
from delayq.client.enqueue import TaskWriter
from delayq.client.routing import Operation, ShardRouter, persistently
from delayq.client.times import instant_ms, span_ms
from delayq.errors import DelayTooLong
from delayq.protocol.commands import ALL, BATCH, START
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import (
    Cancelled,
    Counts,
    Page,
    Position,
    Rescheduled,
    Scheduled,
    Selection,
    State,
    TaskRow,
    TaskView,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from delayq.client.encoding import NewTask, Prepared
    from delayq.client.enqueue import IfExists, Results
    from delayq.contract import Limits
    from delayq.durations import Duration
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import ListPage
    from delayq.protocol.write_durability import Durability

# Of Counts: all other numbers of tasks and bytes.
ADDED_UP = (
    *("scheduled", "retrying", "due", "in_flight", "dead", "lapsed", "suspect", "parked"),
    *("bytes", "history_bytes"),
)


# Complete tasks per round trip: 5 MiB at the default payload limit, which arrive within the timeout.
VIEWS = 20
# Of one page: with filters that few tasks fit, it ends after 10,000 tasks of a shard, and the next one goes on.
TRIPS = 40


class Operations:
    """The operations on one queue, within its limits."""

    def __init__(
        self,
        commands: Commands,
        limits: Limits,
        durability: Durability | None = None,
        *,
        deadline_ms: int | None = None,
    ) -> None:
        """`limits` come from spec.limits, `durability` from spec.durability, the deadline from spec.delivery."""
        self.commands, self.limits, self.deadline_ms = commands, limits, deadline_ms
        self.homes = ShardRouter(commands)
        self.writer = TaskWriter(commands, self.homes, limits, durability, deadline_ms=deadline_ms)
        self.bulk = BulkOperations(self.homes, commands, limits)

    # schedule

    def schedule(self, task: NewTask, if_exists: IfExists) -> Operation[Scheduled]:
        """Store one task, or raise why it was refused or not confirmed."""
        results = yield from self.writer.store(self.writer.chunk(task, if_exists), if_exists)
        return results.one()

    def schedule_many(self, tasks: Iterable[NewTask | Prepared], if_exists: IfExists) -> Operation[Results]:
        """Store any number of tasks, a chunk per round trip."""
        return self.writer.many(tasks, if_exists)

    # single tasks

    def cancel(self, task_id: str, kind: str | None = None, *, running: bool = False) -> Operation[Cancelled]:
        """Delete a task that is not in flight; of one that is, the follow-up, and with `running` cancel the run."""
        stored = stored_id(task_id, kind)
        return (
            yield from self.homes.find(
                stored,
                lambda pinned, shard: pinned.cancel(stored, running=running, shard=shard),
                lambda outcome: outcome is Cancelled.NOT_FOUND,
            )
        )

    def reschedule(
        self, task_id: str, delay_ms: int | None, due_ms: int | None, kind: str | None = None
    ) -> Operation[Rescheduled]:
        """Change a task's due time; raises DelayTooLong."""
        stored, limit_ms = stored_id(task_id, kind), self.limits.max_delay_seconds * 1000
        moment = when(stored, delay_ms, due_ms)
        done = yield from self.homes.find(
            stored,
            lambda pinned, shard: pinned.reschedule(stored, moment, max_delay_ms=limit_ms, shard=shard),
            lambda done: done.outcome == "not_found",
        )
        if done.outcome == "too_far":
            raise DelayTooLong(stored, limit_ms)
        return done

    def get(self, task_id: str, kind: str | None = None) -> Operation[TaskView | None]:
        """Return everything that is stored about a task."""
        stored = stored_id(task_id, kind)
        done: list[TaskView] = []

        def missing(view: TaskView | None) -> bool:
            """A task that exists in another shard comes before its history in this one."""
            if view is not None and view.state is State.DONE:
                done.append(view)
            return view is None or view.state is State.DONE

        found = yield from self.homes.find(
            stored, lambda pinned, shard: pinned.get(stored, shard=shard), missing
        )
        return found or (done[-1] if done else None)

    # whole queue

    def counts(
        self,
        horizons_ms: Sequence[int] = (),
        instants_ms: Sequence[int] = (),
        *,
        horizons: Sequence[Duration] = (),
        instants: Sequence[datetime] = (),
    ) -> Operation[Counts]:
        """Count all shards together, including dropped ones, whose counters are part of the queue's."""
        check_times("horizons_ms", horizons_ms)
        check_times("instants_ms", instants_ms)
        within = {each: span_ms(each, "horizons") for each in checked_list("horizons", horizons, "durations")}
        by = {each: instant_ms(each, "instants") for each in checked_list("instants", instants, "datetimes")}
        asked = [*horizons_ms, *within.values()], [*instants_ms, *by.values()]
        pinned = yield from self.homes.fetch_shard_map()
        shards = range(pinned.shard_map.widest)
        found = summed((yield from persistently([pinned.counts(shard, *asked) for shard in shards])))
        return replace(
            found,
            due_within={ms: found.due_within[ms] for ms in horizons_ms}
            | {each: found.due_within[ms] for each, ms in within.items()},
            due_by={ms: found.due_by[ms] for ms in instants_ms}
            | {each: found.due_by[ms] for each, ms in by.items()},
        )

    def views(self, ids: Sequence[str]) -> Operation[list[TaskView]]:
        """Return what is stored about these tasks, at most VIEWS, except those that are not there or in flight."""
        found = yield from self.homes.at_once(lambda pinned: [pinned.get(task_id) for task_id in ids])
        if found is None:
            found = []
            for task_id in ids:
                view = yield from self.get(task_id)
                found.append(view)
        return [view for view in found if isinstance(view, TaskView)]  # Searching: among the leases

    def waiting(self, chosen: Selection) -> Operation[list[str]]:
        """Return the IDs of the selected tasks that wait, by due time; without a filter, of all."""
        listed = yield from self.bulk.listed(Selection(due_from_ms=0) if chosen == ALL else chosen)
        return sorted(listed, key=lambda task_id: (listed[task_id], task_id))

    def rows(
        self, state: State, *, offset: int = 0, limit: int = EXACT, chosen: Selection = ALL
    ) -> Operation[list[TaskRow]]:
        """Return `limit` selected tasks of a state, in the order of page(), after `offset` others."""
        check_whole("offset", offset)
        check_whole("limit", limit)
        found = yield from self.page(state, limit=offset + limit, chosen=chosen, trips=EXACT)
        return found.rows[offset:]

    def page(
        self,
        state: State,
        *,
        after: Position | None = None,
        limit: int,
        chosen: Selection = ALL,
        trips: int = TRIPS,
    ) -> Operation[Page]:
        """Return up to `limit` selected tasks of a state, sorted by position.

        There are fewer before the last page if `trips` round trips have not found more.
        """
        _check_list(state, chosen)
        check_whole("limit", limit)
        by_due = state in (State.SCHEDULED, State.RETRYING)  # a position is then a due time
        earliest = Position(chosen.due_from_ms or 0, b"") if by_due else START
        pinned = yield from self.homes.fetch_shard_map()
        left = dict.fromkeys(range(len(pinned.shards)), max(after or START, earliest))
        size, found = min(limit + 1, BATCH) if chosen == ALL else BATCH, dict[Position, TaskRow]()
        for _ in range(trips if limit else 0):
            last = sorted(found)[limit] if len(found) > limit else None
            asked = [shard for shard, at in left.items() if last is None or at < last]
            if not asked:
                break
            pages: list[ListPage] = yield from persistently(
                [pinned.list(shard, state, limit=size, after=left[shard], chosen=chosen) for shard in asked]
            )
            for shard, page in zip(asked, pages, strict=True):
                found |= page.rows
                if page.after is None or (by_due and page.after.score >= (chosen.due_before_ms or math.inf)):
                    del left[shard]
                else:
                    left[shard] = page.after
        return _first(found, limit, min(left.values(), default=None))


def _check_list(state: State, chosen: Selection) -> None:
    if state is State.ORPHAN:
        raise ValueError("orphans are in no index that could be listed; the reaper adopts them")
    if state is State.DONE:
        raise ValueError("tasks that are done cannot be listed; get() finds those of the history by ID")
    check_selection(chosen)


def _first(found: dict[Position, TaskRow], limit: int, end: Position | None) -> Page:
    """Return the first rows. Beyond `end`, some shard has not been read."""
    places = sorted(at for at in found if end is None or at <= end)
    return Page([found[at] for at in places[:limit]], places[limit - 1] if len(places) > limit else end)


def summed(found: Sequence[Counts]) -> Counts:
    """Add up the counts of several shards."""
    if len(found) == 1:
        return found[0]
    oldest = [each.oldest_due_ms for each in found if each.oldest_due_ms is not None]
    following = [each.next_due_ms for each in found if each.next_due_ms is not None]
    names = {name for each in found for name in each.stats}
    return Counts(
        **{name: sum(getattr(each, name) for each in found) for name in ADDED_UP},
        now_ms=max(each.now_ms for each in found),
        oldest_due_ms=min(oldest, default=None),
        next_due_ms=min(following, default=None),
        due_within={at: sum(each.due_within[at] for each in found) for at in found[0].due_within},
        due_by={at: sum(each.due_by[at] for each in found) for at in found[0].due_by},
        stats={name: sum(each.stats.get(name, 0) for each in found) for name in sorted(names)},
        format=next((each.format for each in found if each.format != FORMAT), FORMAT),
        suspension=found[0].suspension,
    )
