"""Where a queue's tasks are kept while its number of shards changes. Pure.

Shard 0 decides which shard map follows its own; every other shard stores the newest that it has heard of. A call with
an older one is refused, and the answer has the newer one; so every task is stored where other processes look for it.

A change goes from N to M shards in three steps, each a shard map of its own:

    settled    shards N, was N, target N
    announced  shards N, was N, target M   scanners and workers look after the new shards already
    moving     shards M, was N, target M   new tasks go to their new place, the others are moved or just run
    settled    shards M, was M, target M

docs/decisions/0026 says why this is safe. Operations deal with the errors at the end; one reaches a user only where a
shard stays as it is for seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from delayq.contract.queue import MOST_SHARDS
from delayq.errors import DelayQError
from delayq.protocol.keys import shard_of

UNSTAMPED = "-"
ASKED = 16  # shards, at least, that are asked for the shard map while one of them cannot tell: they are on every node


@dataclass(frozen=True, slots=True)
class ShardMap:
    """How many shards there are, were and will be."""

    epoch: int  # when shard 0 decided, ms, or one more than the last; 0 is a guess, which no shard stores
    shards: int
    was: int
    target: int
    # As many as there ever were: each of them knows a shard map, and none has to be looked for beyond.
    widest: int
    asked: str = UNSTAMPED  # the document that wanted the target, uid:generation; without spaces

    @classmethod
    def guess(cls, shards: int) -> Self:
        """Return what a document or a caller says, before Redis was asked."""
        return cls(0, shards, shards, shards, shards)

    @classmethod
    def first(cls, shards: int, asked: str = UNSTAMPED) -> Self:
        """Return the shard map of an unused queue, for shard 0 to decide on."""
        return cls(1, shards, shards, shards, shards, asked)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what str() wrote; ValueError for anything else."""
        *numbers, asked = text.split(" ")
        epoch, shards, was, target, widest = map(int, numbers)
        if min(epoch, shards, was, target) < 1 or not max(shards, was, target) <= widest <= MOST_SHARDS:
            raise ValueError(f"no shard map: {text!r:.80}")
        return cls(epoch, shards, was, target, widest, asked)

    def __str__(self) -> str:
        """As it is kept in Redis."""
        return f"{self.epoch} {self.shards} {self.was} {self.target} {self.widest} {self.asked}"

    def newer(self, other: ShardMap) -> bool:
        """Whether it takes the place of another; of two of one epoch the scripts take the same one."""
        return (self.epoch, str(self)) > (other.epoch, str(other))

    @property
    def known(self) -> str:
        """What a call says of it: nothing while it is a guess."""
        return str(self) if self.epoch else ""

    @property
    def settled(self) -> bool:
        """Whether nothing moves and nothing is about to."""
        return self.shards == self.was == self.target

    @property
    def moves(self) -> bool:
        """Whether tasks are on their way to other shards."""
        return self.shards != self.was

    @property
    def covers(self) -> int:
        """How many shards have to be looked after: any below may hold tasks."""
        return max(self.shards, self.was, self.target)

    def sharing(self, shard: int) -> int:
        """By how many shards a limit is shared, as far as this one is concerned.

        An old shard may hold what its part of the old ones was until its tasks have left, a new one its part of the
        new ones: none has less than its tasks need, and all together have less than twice the limit while tasks move.
        docs/decisions/0028 has the figures.
        """
        fewer, more = (self.was, self.shards) if self.was < self.shards else (self.shards, self.was)
        return fewer if shard < fewer else more if shard < more else self.covers

    def home(self, task_id: str) -> int:
        """Return the shard in which a task is stored from now on."""
        return shard_of(task_id, self.shards)

    def homes(self, task_id: str) -> tuple[int, ...]:
        """Return the shards a task may be in, in the order in which to look: where it was, then where it goes."""
        first, passing = self.door(task_id)
        return (first, self.home(task_id)) if passing else (first,)

    def door(self, task_id: str) -> tuple[int, bool]:
        """Return the shard in which to look first, and whether the task belongs to another by now."""
        now = shard_of(task_id, self.shards)
        before = shard_of(task_id, self.was) if self.moves else now
        return before, before != now

    def follows(self) -> ShardMap | None:
        """Return the shard map of the next step towards the target; None when this one is settled."""
        if self.settled:
            return None
        was = self.target if self.moves else self.shards
        return ShardMap(self.epoch + 1, self.target, was, self.target, self.widest, self.asked)

    def towards(self, wanted: int, asked: str) -> ShardMap | None:
        """Return the shard map that announces `wanted` shards; None while tasks migrate, or if it is announced."""
        if self.moves or wanted == self.target:
            return None
        widest = max(self.widest, wanted)
        return ShardMap(self.epoch + 1, self.shards, self.shards, wanted, widest, asked)


class ShardMapOutdated(DelayQError):
    """The caller went by a shard map that is older than what the shard knows; nothing was done."""

    def __init__(self, shard_map: ShardMap | None) -> None:
        """`shard_map` is the newer one; None when the shard was erased since."""
        super().__init__(
            f"the queue has {shard_map.target} shards by now"
            if shard_map
            else "a shard of the queue was erased, and others were not: a scanner repairs that, or erase them all"
        )
        self.shard_map = shard_map


class TaskMigrating(DelayQError):
    """The task is on its way to another shard; nothing was done."""

    def __init__(self, task_id: str) -> None:
        """Name the task, as Redis has it."""
        super().__init__(f"task {task_id} is on its way to another shard")
        self.task_id = task_id
