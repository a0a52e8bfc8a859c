"""Routing: which shards to call for a task, in which order, also while it migrates.

Generators, as in operations.py. docs/contributing/decisions/0026 says why the order matters.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from delayq.errors import DelayQError, Unavailable
from delayq.protocol.commands import BATCH
from delayq.protocol.results import BatchOutOfOrder, Searching
from delayq.protocol.shard_map import ASKED, ShardMap, ShardMapOutdated, TaskMigrating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import ConfirmCommands

T = TypeVar("T")
# Yields calls to run, seconds to pause, Start, Finish or Trip; receives the results, which are untyped.
Operation = Generator[Any, Any, T]

PAUSES_SECONDS = (0.05, 0.2, 1.0)  # between tries while Redis is unavailable
# Pause while a task seems to migrate although it is at home, for some seconds after a fail-over.
AGAIN_SECONDS = 0.5
TRIES = 20


class Trip(NamedTuple):
    """Send these calls and their confirmation; the result is that of Finish.

    Without calls, the confirmation goes to every server of these shards; the result has a list of replies from each.
    """

    calls: list[Call[Any]]
    confirm: ConfirmCommands
    shards: tuple[Keys, ...] = ()


class Each(NamedTuple):
    """Send these calls and their confirmation; errors are returned as values."""

    calls: list[Call[Any]]
    confirm: ConfirmCommands | None = None


class ShardRouter:
    """Routes calls by the newest known shard map of one queue."""

    def __init__(self, commands: Commands) -> None:
        """Share the queue."""
        self._commands = commands
        self.is_cluster = False  # whether shards may be on several servers

    def known(self, shard: int = 0, *, use: bool = False) -> Operation[Commands]:
        """Return the commands under the current shard map; for an unused queue, under the caller's.

        `use` writes the caller's shard map to Redis, because a task is about to be stored. `shard` is where: a client
        that has not asked before asks this shard, so that an unreachable server affects its own shards only.
        """
        first = ShardMap.first(self._commands.shard_map.shards) if use else None
        if not self._commands.shard_map.epoch:
            reading = self._from_any(shard if self.is_cluster else 0, first)
            self.adopt((yield from patiently(reading)))
        return self._commands.pinned_to(self._commands.shard_map)

    def _from_any(self, shard: int, first: ShardMap | None) -> Callable[[], Operation[ShardMap | None]]:
        """Return an operation that reads the shard map from a shard, then from shard 0; at an outage, from all others.

        Each shard has the newest map that it received. If that is outdated, shards reject calls by id.
        """

        def attempt() -> Operation[ShardMap | None]:
            try:
                if shard:
                    [state] = yield [self._commands.sync_shard_map(shard)]
                    if state.shard_map is not None:
                        return state.shard_map  # type: ignore[no-any-return] # answers travel untyped
                [state] = yield [self._commands.sync_shard_map(0, first, proposed=True)]
            except Unavailable:
                found = yield from self._others(except_shard=shard)
                if found is None:
                    raise
                return found
            return state.shard_map  # type: ignore[no-any-return] # as above

        return attempt

    def _others(self, *, except_shard: int) -> Operation[ShardMap | None]:
        if not self.is_cluster:
            return None
        shards = [
            shard
            for shard in range(max(self._commands.shard_map.shards_in_use, ASKED))
            if shard != except_shard
        ]
        answers = yield Each([self._commands.sync_shard_map(shard) for shard in shards])
        shard_maps = [
            state.shard_map for state in answers if not isinstance(state, DelayQError) and state.shard_map
        ]
        return max(shard_maps, key=lambda shard_map: shard_map.epoch, default=None)

    def fetch_shard_map(self) -> Operation[Commands]:
        """Return the commands under the shard map of shard 0, for calls that go to all shards."""
        [state] = yield from persistently([self._commands.sync_shard_map(0)])
        self.adopt(state.shard_map)
        return self._commands.pinned_to(self._commands.shard_map)

    def adopt(self, shard_map: ShardMap | None) -> None:
        """Adopt the shard map of a shard, if it has one."""
        if shard_map is not None:
            self._commands.apply_shard_map(shard_map)

    def find(
        self, task_id: str, call: Callable[[Commands, int], Call[T]], missing: Callable[[T], bool]
    ) -> Operation[T]:
        """Call the task's homes until one of them has the task."""
        unresolved: DelayQError | None = None
        for _ in range(TRIES):
            pinned = yield from self.known(self._commands.shard_of(task_id))
            try:
                answer = yield from self._find(pinned, task_id, call, missing)
            except ShardMapOutdated as error:
                self._commands.apply_shard_map(error.shard_map)
                if error.shard_map is None:
                    yield AGAIN_SECONDS if unresolved else 0.0
                    unresolved = error
            except TaskMigrating:
                yield AGAIN_SECONDS
            else:
                return answer
        raise unresolved or still_migrating(task_id)

    def _find(
        self,
        pinned: Commands,
        task_id: str,
        call: Callable[[Commands, int], Call[T]],
        missing: Callable[[T], bool],
    ) -> Operation[T]:
        *before, home = pinned.shard_map.homes(task_id)
        for shard in before:
            try:
                answer = yield from self.whole(call(pinned, shard))
            except TaskMigrating:
                yield from self.bring(pinned, shard, task_id)
            else:
                if not missing(answer):
                    found: T = answer
                    return found
        last = yield from self.whole(call(pinned, home))
        return last  # type: ignore[no-any-return] # answers travel untyped between a generator and its driver

    def whole(self, call: Call[Any]) -> Operation[Any]:
        """Repeat a call while its result is Searching."""
        [answer] = yield from persistently([call])
        while isinstance(answer, Searching):
            [answer] = yield from persistently([answer.next])
        return answer

    def at_once(self, calls: Callable[[Commands], list[Call[Any]]]) -> Operation[list[Any] | None]:
        """Run calls by id in one round trip; None if tasks migrate, so that they may be in two shards."""
        pinned = yield from self.known()
        if pinned.shard_map.moves:
            return None
        try:
            answers: list[Any] = yield from persistently(calls(pinned))
        except ShardMapOutdated as error:
            self._commands.apply_shard_map(error.shard_map)
        except TaskMigrating:  # a fail-over lost the commit of its migration
            pass
        else:
            return answers
        return None

    def bring(self, pinned: Commands, shard: int, task_id: str) -> Operation[set[str]]:
        """Complete the migration of a task out of a shard; returns the ids of its batch."""
        while True:
            [batch] = yield from persistently([pinned.list_migrating(shard, task_id=task_id)])
            for to, tasks in batch.by_shard().items():
                ids = {task.arguments[0].decode(errors="replace") for task in tasks}
                if task_id not in ids:
                    continue
                [answer] = yield from persistently([pinned.migrate_in(to, shard, batch.token, tasks)])
                if not isinstance(answer, BatchOutOfOrder):
                    return ids
                yield from persistently([pinned.migrate_retoken(shard, batch.token, to, answer)])
                break
            else:
                return {task_id}  # it has migrated already

    def everywhere(
        self, ids: Sequence[str], call: Callable[[Commands, int, list[str]], Call[int]], tries: int = TRIES
    ) -> Operation[int]:
        """Run a call on each of these tasks in whichever shard it is; returns the number of tasks affected.

        The call must be idempotent.
        """
        pinned, count = (yield from self.known(self._commands.shard_of(ids[0]) if ids else 0)), 0
        for hop in range(2):
            for shard, batch in _batches(pinned.shard_map, ids, hop):
                try:
                    count += yield from self._at(pinned, shard, batch, call)
                except ShardMapOutdated as error:
                    self._commands.apply_shard_map(error.shard_map)
                    if not tries:
                        raise
                    if error.shard_map is None and tries < TRIES:
                        yield AGAIN_SECONDS
                    count += yield from self.everywhere(batch, call, tries - 1)
        return count

    def _at(
        self,
        pinned: Commands,
        shard: int,
        ids: list[str],
        call: Callable[[Commands, int, list[str]], Call[int]],
    ) -> Operation[int]:
        while ids:
            try:
                [count] = yield from persistently([call(pinned, shard, ids)])
            except TaskMigrating as error:
                gone = yield from self.bring(pinned, shard, error.task_id)
                ids = [task_id for task_id in ids if task_id not in gone]
            else:
                return int(count)
        return 0


def still_migrating(task_id: str) -> DelayQError:
    """Return the error of a task that does not stop migrating."""
    return DelayQError(f"task {task_id} is still migrating after {TRIES} tries: check that a scanner runs")


def _batches(shard_map: ShardMap, ids: Iterable[str], hop: int) -> Iterator[tuple[int, list[str]]]:
    """Group ids by the shard to call first, or second."""
    by_shard: dict[int, list[str]] = {}
    for task_id in ids:
        for shard in shard_map.homes(task_id)[hop : hop + 1]:
            by_shard.setdefault(shard, []).append(task_id)
    for shard, members in by_shard.items():
        for at in range(0, len(members), BATCH):
            yield shard, members[at : at + BATCH]


def persistently(
    calls: list[Call[Any]], confirm: ConfirmCommands | None = None, shards: tuple[Keys, ...] = ()
) -> Operation[list[Any]]:
    """Yield calls until Redis replies, a few times. They must be idempotent: each try may have been executed."""
    asked = Trip(calls, confirm, shards) if confirm else calls

    def attempt() -> Operation[list[Any]]:
        answers: list[Any] = yield asked
        return answers

    return (yield from patiently(attempt))


def patiently(attempt: Callable[[], Operation[T]]) -> Operation[T]:
    """Repeat an operation until Redis replies, a few times."""
    for pause in PAUSES_SECONDS:
        try:
            answer = yield from attempt()
        except Unavailable:
            yield pause
        else:
            return answer
    return (yield from attempt())
