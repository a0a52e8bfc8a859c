"""The tasks a worker is running, and what it still has to tell Redis about those it has run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from delayq.scripts import Argument
    from delayq.values import Lease

Verb = Literal["ack", "retry", "bury", "release"]
CancelReason = Literal["timeout", "lease_lost", "drain"]


@dataclass(slots=True, eq=False)
class Running:
    """One slot in use. Times are monotonic seconds."""

    lease: Lease
    extended_at: float
    deadline: float
    handling: asyncio.Task[None] | None = None
    cancelled_for: CancelReason | None = None

    def cancel(self, reason: CancelReason) -> None:
        """Stop the handler; the reason decides what becomes of the task. The first reason stands."""
        if self.cancelled_for is None and self.handling is not None:
            self.cancelled_for = reason
            self.handling.cancel()


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to become of one lease; `arguments` are the verb's own, after the member."""

    verb: Verb
    lease: Lease
    arguments: tuple[Argument, ...] = ()


@dataclass(slots=True)
class Outbox:
    """Settlements that Redis has not confirmed. At most one per slot: a slot claims only after its settlement left."""

    waiting: list[Settlement] = field(default_factory=list)

    def take(self) -> Iterator[tuple[int, Verb, list[Settlement]]]:
        """Empty the box: yield shard, verb and settlements, of each kind together."""
        groups: dict[tuple[int, Verb], list[Settlement]] = {}
        for settlement in self.waiting:
            groups.setdefault((settlement.lease.shard, settlement.verb), []).append(settlement)
        self.waiting = []
        for (shard, verb), settlements in groups.items():
            yield shard, verb, settlements
