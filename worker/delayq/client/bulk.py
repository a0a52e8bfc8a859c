"""Bulk operations: count, cancel and reschedule the tasks with a tag, a kind and due times in a range.

Generators, as in operations.py. Each reads all shards at once, page by page. Decision 0056 says which tasks are
covered, also while tasks migrate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delayq.client.encoding import check_kind, checked_tag, when
from delayq.client.routing import AGAIN_SECONDS, TRIES, Each, Operation, patiently, persistently
from delayq.client.times import MAX_MS
from delayq.errors import DelayQError
from delayq.protocol.commands import ALL
from delayq.protocol.results import Bulk
from delayq.protocol.shard_map import ShardMapOutdated, TaskMigrating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq.client.routing import ShardRouter
    from delayq.contract import Limits
    from delayq.protocol.commands import BulkAction, Call, Commands
    from delayq.protocol.results import BulkPage, Rescheduled, Selection
    from delayq.protocol.shard_map import ShardMap

    Progress = Callable[[Bulk], None]


@dataclass
class Pages:
    """Sums up the pages of a count or a cancellation, and collects what a list finds."""

    action: BulkAction
    found: Bulk = field(default_factory=Bulk)
    listed: dict[str, int] = field(default_factory=dict)  # IDs, and due times

    def begin(self) -> None:
        """All shards are read from the start: what is cancelled is not found again, all others are."""
        self.found = Bulk(*self.found[:2]) if self.action == "cancel" else Bulk()
        self.listed.clear()

    def use(self, _pinned: Commands, _shard: int, page: BulkPage) -> Operation[None]:
        """Add a page."""
        self.found = Bulk(*map(sum, zip(self.found, page.found, strict=True)))
        self.listed.update(page.listed)
        yield from ()


@dataclass
class Moves:
    """Gives each task its new due time once, although it may be listed again after it has migrated."""

    router: ShardRouter
    limit_ms: int
    due_ms: int | None
    shift_ms: int
    targets: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    far: set[str] = field(default_factory=set)
    left: Bulk = field(default_factory=Bulk)
    action: BulkAction = "list"

    @property
    def found(self) -> Bulk:
        """The numbers so far."""
        return self.left._replace(tasks=len(self.done), follow_ups=0, too_far=len(self.far))

    def begin(self) -> None:
        """All shards are read from the start."""
        self.left = Bulk()

    def use(self, pinned: Commands, shard: int, page: BulkPage) -> Operation[None]:
        """Reschedule the tasks of a page."""
        self.left = Bulk(*map(sum, zip(self.left, page.found, strict=True)))
        for task_id, was_ms in page.listed:
            self.targets.setdefault(
                task_id, max(0, was_ms + self.shift_ms) if self.due_ms is None else self.due_ms
            )
        return (yield from patiently(lambda: self._move(pinned, shard, page.listed)))

    def _move(self, pinned: Commands, shard: int, listed: list[tuple[str, int]]) -> Operation[None]:
        """Try once; may be repeated, because a task is only moved from the due time with which it was listed."""

        def call(task_id: str, was_ms: int) -> Call[Rescheduled]:
            target = str(self.targets[task_id])
            return pinned.reschedule(task_id, target, max_delay_ms=self.limit_ms, was_ms=was_ms, shard=shard)

        todo = [each for each in listed if each[0] not in self.done and each[0] not in self.far]
        answers = (yield Each([call(*each) for each in todo])) if todo else []
        failed: DelayQError | None = None
        for (task_id, _), answer in zip(todo, answers, strict=False):
            if isinstance(answer, TaskMigrating):
                yield from self.router.bring(pinned, shard, task_id)
            elif isinstance(answer, DelayQError):
                failed = answer
            elif answer.outcome == "too_far":
                self.far.add(task_id)
            elif answer.outcome == "rescheduled" or answer.due_ms == self.targets[task_id]:
                self.done.add(task_id)
        if failed:
            raise failed


class BulkOperations:
    """The bulk operations on one queue. `progress` receives the numbers so far after each round trip."""

    def __init__(self, router: ShardRouter, commands: Commands, limits: Limits) -> None:
        """Share the queue and its limits."""
        self._router, self._commands, self._limits = router, commands, limits

    def count(self, chosen: Selection, progress: Progress | None = None) -> Operation[Bulk]:
        """Count the selected tasks."""
        return self._walk(Pages("count"), chosen, progress)

    def cancel(self, chosen: Selection, progress: Progress | None = None) -> Operation[Bulk]:
        """Cancel the selected tasks that are not in flight and not dead, and follow-ups."""
        return self._walk(Pages("cancel"), chosen, progress)

    def listed(self, chosen: Selection) -> Operation[dict[str, int]]:
        """Return the selected tasks that wait, and their due times."""
        found = Pages("list")
        yield from self._walk(found, chosen, None)
        return found.listed

    def reschedule(
        self,
        chosen: Selection,
        due_ms: int | None,
        shift_ms: int | None,
        progress: Progress | None = None,
    ) -> Operation[Bulk]:
        """Change the due times of the selected tasks: to `due_ms`, or by `shift_ms`, each task once."""
        if (due_ms is None) == (shift_ms is None):
            raise ValueError("expected exactly one of due and shift")
        if due_ms is not None:
            when("", None, due_ms)
        elif type(shift_ms) is not int or abs(shift_ms) >= MAX_MS:
            raise ValueError(f"shift_ms: expected a whole number of milliseconds, got {shift_ms!r:.60}")
        moves = Moves(self._router, self._limits.max_delay_seconds * 1000, due_ms, shift_ms or 0)
        return self._walk(moves, chosen, progress)

    def _walk(self, job: Pages | Moves, chosen: Selection, progress: Progress | None) -> Operation[Bulk]:
        """Read all shards to the end. Begins again when the shard map has changed meanwhile."""
        if chosen == ALL:
            raise ValueError("expected a tag, a kind, due_from or due_before, got none of them")
        check_selection(chosen)
        for _ in range(TRIES):
            job.begin()
            pinned = yield from self._router.fetch_shard_map()
            try:
                brought = False
                for shards in _stages(pinned.shard_map):
                    brought |= yield from self._read(pinned, shards, job, chosen, progress)
            except ShardMapOutdated as error:
                self._commands.apply_shard_map(error.shard_map)
                yield AGAIN_SECONDS if error.shard_map is None else 0.0
            else:
                # Without resharding, a fail-over may leave tasks in migration, which may arrive behind our cursors.
                if pinned.shard_map.moves or not brought:
                    return job.found
        raise DelayQError(f"the shards of the queue have changed {TRIES} times: call again")

    def _read(  # noqa: PLR0917 -- as _walk, and where
        self,
        pinned: Commands,
        shards: Iterable[int],
        job: Pages | Moves,
        chosen: Selection,
        progress: Progress | None,
    ) -> Operation[bool]:
        """Read these shards to the end, a page of each per round trip; returns whether it completed migrations."""
        cursors, brought = dict.fromkeys(shards, b""), set[str]()
        while cursors:
            pages = yield from persistently(
                [pinned.bulk(shard, job.action, chosen, cursor) for shard, cursor in cursors.items()]
            )
            for shard, page in zip(list(cursors), pages, strict=True):
                for raw in page.migrating:
                    task_id = raw.decode(errors="replace")
                    if task_id not in brought:
                        brought |= yield from self._router.bring(pinned, shard, task_id)
                yield from job.use(pinned, shard, page)
                if page.cursor:
                    cursors[shard] = page.cursor
                else:
                    del cursors[shard]
            if progress:
                progress(job.found)
        return bool(brought)


def _stages(shard_map: ShardMap) -> list[range]:
    """Return the shards in the order to read: while tasks migrate, first those that tasks leave."""
    if not shard_map.moves:
        return [range(shard_map.shards_in_use)]
    if shard_map.shards > shard_map.was:
        return [range(shard_map.was), range(shard_map.was, shard_map.shards)]
    return [range(shard_map.shards, shard_map.was), range(shard_map.shards)]


def check_selection(chosen: Selection) -> None:
    """Refuse what can select no task."""
    if chosen.tag is not None:
        checked_tag(chosen.tag)
    if chosen.kind is not None:
        check_kind(chosen.kind)
    for name in ("due_from_ms", "due_before_ms"):
        value = getattr(chosen, name)
        if value is not None and (type(value) is not int or not 0 <= value < MAX_MS):
            raise ValueError(f"{name}: expected milliseconds since 1970, got {value!r:.60}")
