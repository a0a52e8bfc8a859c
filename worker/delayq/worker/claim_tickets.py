"""A shard group's claims in progress: until when Redis may execute each, and which replies were lost. Pure.

A worker that waits no longer for a reply cannot withdraw its request: a server that hung executes it when it goes on.
So each claim says until when it may be executed, by Redis' clock, which each reply tells. A worker that does not know
that clock, at first and after a failure, sends a claim that may not be executed at all, and learns it from the reply.
"""

from __future__ import annotations

import secrets

from delayq.protocol.results import Ticket


class ClaimTickets:
    """At most one claim of each shard is on its way. `now` is in monotonic seconds."""

    def __init__(self) -> None:
        """Redis' clock is not known yet."""
        self.claimer = secrets.token_hex(6)
        self.lost: dict[int, int] = {}  # shard to the number of its claim whose reply was lost
        self._number = 0
        self._ahead_ms: float | None = None  # of Redis' clock, compared with ours

    def ticket(self, now: float, seconds: float) -> Ticket:
        """Return what the next claim carries, which Redis may execute for some seconds from now on."""
        if self._ahead_ms is None:
            return Ticket(self.claimer, 0, 0)
        self._number += 1
        return Ticket(self.claimer, self._number, int(now * 1000 + self._ahead_ms + seconds * 1000))

    def replied(self, now_ms: int, sent_at: float) -> None:
        """Note Redis' time in a reply. It counts from the request, so a server that is always slow gets its time."""
        self._ahead_ms = now_ms - sent_at * 1000

    def failed(self, shard: int, ticket: Ticket) -> None:
        """Note that a reply was lost. Another server may answer next time, with another clock."""
        self._ahead_ms = None
        if ticket.number:
            self.lost[shard] = ticket.number

    def returned(self, shard: int) -> None:
        """Note that Redis has put back what the lost claim took, and will not execute it any more."""
        self.lost.pop(shard, None)
