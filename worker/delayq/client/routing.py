"""Where to ask for a task, in what order, and what to do when the answer is: not here, not any more, not yet.

Generators, as in operations.py. docs/decisions/0026 says why the order matters.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from delayq.errors import DelayQError, Unavailable
from delayq.protocol.commands import BATCH
from delayq.protocol.results import Late, Searching
from delayq.protocol.shard_map import ASKED, Layout, LayoutOutdated, TaskMoves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from delayq.protocol.commands import Broker, Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import Behind

T = TypeVar("T")
# Yields calls to run, seconds to pause, Start, Finish or Trip; is sent the answers, which travel untyped.
Operation = Generator[Any, Any, T]

PAUSES_SECONDS = (0.05, 0.2, 1.0)  # between tries while Redis is unavailable
# A task that seems to move though it is at home: only after a fail-over, and for some seconds.
AGAIN_SECONDS = 0.5
TRIES = 20


class Trip(NamedTuple):
    """Send these calls and what is behind them; answered as Finish is.

    Without calls, what is behind them goes to every server that holds one of these shards: a list of replies from each.
    """

    calls: list[Call[Any]]
    behind: Behind
    shards: tuple[Keys, ...] = ()


class Each(NamedTuple):
    """Send these calls and what is behind them; of those that come to nothing, the error is the answer."""

    calls: list[Call[Any]]
    behind: Behind | None = None


class Homes:
    """The shards of one queue, by the newest layout that anybody told us of."""

    def __init__(self, broker: Broker) -> None:
        """Share the queue."""
        self._broker = broker
        self.apart = False  # shards may be on several servers: what one of them cannot tell, another may

    def known(self, shard: int = 0, *, use: bool = False) -> Operation[Broker]:
        """Return the queue by the layout that holds now; of one that nobody has used, by what our caller says.

        `use` makes that the layout, for something is about to be stored. `shard` is where that would be: a client that
        has not asked before asks there, so that a server which is away concerns its own shards only.
        """
        first = Layout.first(self._broker.layout.shards) if use else None
        if not self._broker.layout.epoch:
            asking = self._anybody(shard if self.apart else 0, first)
            self.follow((yield from patiently(asking)))
        return self._broker.by(self._broker.layout)

    def _anybody(self, shard: int, first: Layout | None) -> Callable[[], Operation[Layout | None]]:
        """Return what asks a shard, then shard 0, which decides, and while one of them is away all others.

        Each knows the newest layout that it was told of. Should that be an old one, by-id calls are refused.
        """

        def ask() -> Operation[Layout | None]:
            try:
                if shard:
                    [told] = yield [self._broker.tell(shard)]
                    if told.layout is not None:
                        return told.layout  # type: ignore[no-any-return] # answers travel untyped
                [told] = yield [self._broker.tell(0, first, proposed=True)]
            except Unavailable:
                found = yield from self._others(but=shard)
                if found is None:
                    raise
                return found
            return told.layout  # type: ignore[no-any-return] # as above

        return ask

    def _others(self, *, but: int) -> Operation[Layout | None]:
        if not self.apart:
            return None
        shards = [shard for shard in range(max(self._broker.layout.covers, ASKED)) if shard != but]
        answers = yield Each([self._broker.tell(shard) for shard in shards])
        layouts = [told.layout for told in answers if not isinstance(told, DelayQError) and told.layout]
        return max(layouts, key=lambda layout: layout.epoch, default=None)

    def asked(self) -> Operation[Broker]:
        """Return the queue by the layout that shard 0 knows; for what concerns all shards, and is refused by none."""
        [told] = yield from persistently([self._broker.tell(0)])
        self.follow(told.layout)
        return self._broker.by(self._broker.layout)

    def follow(self, layout: Layout | None) -> None:
        """Go by the layout that a shard told us, if it knows any."""
        if layout is not None:
            self._broker.learn(layout)

    def find(
        self, task_id: str, call: Callable[[Broker, int], Call[T]], missing: Callable[[T], bool]
    ) -> Operation[T]:
        """Ask the task's homes, until one of them does not answer that the task is missing."""
        stays: DelayQError | None = None
        for _ in range(TRIES):
            by = yield from self.known(self._broker.shard_of(task_id))
            try:
                answer = yield from self._find(by, task_id, call, missing)
            except LayoutOutdated as error:
                self._broker.learn(error.layout)
                if error.layout is None:
                    yield AGAIN_SECONDS if stays else 0.0
                    stays = error
            except TaskMoves:
                yield AGAIN_SECONDS
            else:
                return answer
        raise stays or strayed(task_id)

    def _find(
        self, by: Broker, task_id: str, call: Callable[[Broker, int], Call[T]], missing: Callable[[T], bool]
    ) -> Operation[T]:
        *before, home = by.layout.homes(task_id)
        for shard in before:
            try:
                answer = yield from self.whole(call(by, shard))
            except TaskMoves:
                yield from self.bring(by, shard, task_id)
            else:
                if not missing(answer):
                    found: T = answer
                    return found
        last = yield from self.whole(call(by, home))
        return last  # type: ignore[no-any-return] # answers travel untyped between a generator and its driver

    def whole(self, call: Call[Any]) -> Operation[Any]:
        """Ask, and go on asking while the answer is a part of a search."""
        [answer] = yield from persistently([call])
        while isinstance(answer, Searching):
            [answer] = yield from persistently([answer.next])
        return answer

    def bring(self, by: Broker, shard: int, task_id: str) -> Operation[set[str]]:
        """See to it that a task that departed from a shard arrives; returns those that came with it."""
        while True:
            [batch] = yield from persistently([by.departed(shard, task_id=task_id)])
            for to, tasks in batch.by_shard().items():
                ids = {task.arguments[0].decode(errors="replace") for task in tasks}
                if task_id not in ids:
                    continue
                [answer] = yield from persistently([by.arrive(to, shard, batch.token, tasks)])
                if not isinstance(answer, Late):
                    return ids
                yield from persistently([by.renumber(shard, batch.token, to, answer)])
                break
            else:
                return {task_id}  # it has arrived, and left

    def everywhere(
        self, ids: Sequence[str], call: Callable[[Broker, int, list[str]], Call[int]], tries: int = TRIES
    ) -> Operation[int]:
        """Do something to each of these tasks that is there, wherever it is; returns to how many it was done.

        Safe to repeat, as what is done to them is: they are not there afterwards.
        """
        by, count = (yield from self.known(self._broker.shard_of(ids[0]) if ids else 0)), 0
        for hop in range(2):
            for shard, batch in _batches(by.layout, ids, hop):
                try:
                    count += yield from self._at(by, shard, batch, call)
                except LayoutOutdated as error:
                    self._broker.learn(error.layout)
                    if not tries:
                        raise
                    if error.layout is None and tries < TRIES:
                        yield AGAIN_SECONDS
                    count += yield from self.everywhere(batch, call, tries - 1)
        return count

    def _at(
        self, by: Broker, shard: int, ids: list[str], call: Callable[[Broker, int, list[str]], Call[int]]
    ) -> Operation[int]:
        while ids:
            try:
                [count] = yield from persistently([call(by, shard, ids)])
            except TaskMoves as error:
                gone = yield from self.bring(by, shard, error.task_id)
                ids = [task_id for task_id in ids if task_id not in gone]
            else:
                return int(count)
        return 0


def strayed(task_id: str) -> DelayQError:
    """Say of a task that its shards send us to and fro."""
    return DelayQError(f"task {task_id} is between two shards, and stays there: no scanner seems to run")


def _batches(layout: Layout, ids: Iterable[str], hop: int) -> Iterator[tuple[int, list[str]]]:
    """Group ids by the shard to ask first, or second."""
    by_shard: dict[int, list[str]] = {}
    for task_id in ids:
        for shard in layout.homes(task_id)[hop : hop + 1]:
            by_shard.setdefault(shard, []).append(task_id)
    for shard, members in by_shard.items():
        for at in range(0, len(members), BATCH):
            yield shard, members[at : at + BATCH]


def persistently(
    calls: list[Call[Any]], behind: Behind | None = None, shards: tuple[Keys, ...] = ()
) -> Operation[list[Any]]:
    """Yield calls until Redis answers, a few times. They have to be safe to repeat: each try may have been done."""
    asked = Trip(calls, behind, shards) if behind else calls

    def ask() -> Operation[list[Any]]:
        answers: list[Any] = yield asked
        return answers

    return (yield from patiently(ask))


def patiently(ask: Callable[[], Operation[T]]) -> Operation[T]:
    """Ask until Redis answers, a few times."""
    for pause in PAUSES_SECONDS:
        try:
            answer = yield from ask()
        except Unavailable:
            yield pause
        else:
            return answer
    return (yield from ask())
