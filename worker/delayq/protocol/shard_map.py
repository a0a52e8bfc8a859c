"""The shard map: in which shard a task is stored, also while the number of shards changes. Pure.

Shard 0 decides about the next shard map; every other shard stores the newest that it has received. A shard rejects
calls with an older one and replies with its own, so that all processes store and find a task in the same shard.

Resharding from N to M shards has three steps, each a shard map:

    settled    shards N, was N, target N
    announced  shards N, was N, target M   scanners and workers serve the new shards, too
    moving     shards M, was N, target M   new tasks are stored in their new home, others migrate or run
    settled    shards M, was M, target M

Decision 0026 says why this is safe. Operations handle the errors at the end of this module; a user sees one only
if a shard does not make progress for seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from delayq.contract.queue import MOST_SHARDS
from delayq.errors import DelayQError
from delayq.protocol.keys import shard_of

UNSTAMPED = "-"
ASKED = 16  # shards, at least, to read the shard map from while shard 0 does not serve: they cover every node


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The current, previous and next number of shards."""

    epoch: int  # time of shard 0's decision, ms, or the last epoch plus 1; 0: assumed, which no shard stores
    shards: int
    was: int
    target: int
    widest: int  # the largest number of shards so far: no other shard stores a shard map
    asked: str = UNSTAMPED  # the document that requested the target, uid:generation; without spaces

    @classmethod
    def assumed(cls, shards: int) -> Self:
        """Return the shard map that a document or caller implies, until Redis' own is read."""
        return cls(0, shards, shards, shards, shards)

    @classmethod
    def first(cls, shards: int, asked: str = UNSTAMPED) -> Self:
        """Return the first shard map of a queue, as a proposal to shard 0."""
        return cls(1, shards, shards, shards, shards, asked)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the output of str(); ValueError for anything else."""
        *numbers, asked = text.split(" ")
        epoch, shards, was, target, widest = map(int, numbers)
        if min(epoch, shards, was, target) < 1 or not max(shards, was, target) <= widest <= MOST_SHARDS:
            raise ValueError(f"no shard map: {text!r:.80}")
        return cls(epoch, shards, was, target, widest, asked)

    def __str__(self) -> str:
        """Return the format that Redis stores."""
        return f"{self.epoch} {self.shards} {self.was} {self.target} {self.widest} {self.asked}"

    def newer(self, other: ShardMap) -> bool:
        """Whether it replaces another. Two of the same epoch are compared as the scripts do."""
        return (self.epoch, str(self)) > (other.epoch, str(other))

    @property
    def known(self) -> str:
        """The caller's shard map as an argument of a call: empty while it is assumed."""
        return str(self) if self.epoch else ""

    @property
    def settled(self) -> bool:
        """Whether no resharding is announced or under way."""
        return self.shards == self.was == self.target

    @property
    def moves(self) -> bool:
        """Whether tasks migrate."""
        return self.shards != self.was

    @property
    def shards_in_use(self) -> int:
        """The number of shards that may hold tasks."""
        return max(self.shards, self.was, self.target)

    def quota_shards(self, shard: int) -> int:
        """Return among how many shards a limit is divided for this shard's quota.

        While tasks migrate, an old shard keeps its quota among the old number and a new one has its quota among the
        new number. All quotas together stay below twice the limit; docs/contributing/decisions/0028 has the figures.
        """
        fewer, more = (self.was, self.shards) if self.was < self.shards else (self.shards, self.was)
        return fewer if shard < fewer else more if shard < more else self.shards_in_use

    def home(self, task_id: str) -> int:
        """Return the shard in which new tasks with this id are stored."""
        return shard_of(task_id, self.shards)

    def homes(self, task_id: str) -> tuple[int, ...]:
        """Return the shards that may hold a task, in lookup order: its previous home, then its home."""
        first, passing = self.first_lookup(task_id)
        return (first, self.home(task_id)) if passing else (first,)

    def first_lookup(self, task_id: str) -> tuple[int, bool]:
        """Return the shard to call first for a task, and whether the task's home is another one."""
        now = shard_of(task_id, self.shards)
        before = shard_of(task_id, self.was) if self.moves else now
        return before, before != now

    def next_step(self) -> ShardMap | None:
        """Return the shard map of the next step towards the target; None when settled."""
        if self.settled:
            return None
        was = self.target if self.moves else self.shards
        return ShardMap(self.epoch + 1, self.target, was, self.target, self.widest, self.asked)

    def announcing(self, wanted: int, asked: str) -> ShardMap | None:
        """Return the shard map that announces `wanted` shards; None while tasks migrate, or if it is announced."""
        if self.moves or wanted == self.target:
            return None
        widest = max(self.widest, wanted)
        return ShardMap(self.epoch + 1, self.shards, self.shards, wanted, widest, asked)


class ShardMapOutdated(DelayQError):
    """The shard has a newer shard map than the caller and rejected the call."""

    def __init__(self, shard_map: ShardMap | None) -> None:
        """`shard_map` is the newer one; None: the shard was erased."""
        super().__init__(
            f"the shard map has changed: the number of shards is now {shard_map.target}; call again"
            if shard_map
            else "a shard of the queue was erased, but others were not; run a scanner to repair it, or erase the queue"
        )
        self.shard_map = shard_map


class TaskMigrating(DelayQError):
    """The task migrates to another shard; the shard rejected the call."""

    def __init__(self, task_id: str) -> None:
        """`task_id` is the id in Redis."""
        super().__init__(f"task {task_id} is migrating to another shard; call again")
        self.task_id = task_id
