"""The claims of one connection to a shard group: the deadline of each, and which replies were lost. Pure.

A worker that times out cannot withdraw its request: a server that hung executes it later. So each claim carries a
deadline by Redis' clock, which the worker reads from replies. Without a reading, at first and after a failure, the
worker sends a claim that has expired already, only to read the clock.
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
        """Return the ticket of the next claim, which Redis may execute within `seconds` from now."""
        if self._ahead_ms is None:
            return Ticket(self.claimer, 0, 0)
        self._number += 1
        return Ticket(self.claimer, self._number, int(now * 1000 + self._ahead_ms + seconds * 1000))

    def replied(self, now_ms: int, sent_at: float) -> None:
        """Record Redis' time from a reply, relative to the request, so that claims of a slow server do not expire."""
        self._ahead_ms = now_ms - sent_at * 1000

    def failed(self, shard: int, ticket: Ticket) -> None:
        """Record a lost reply. The next reply may come from another server with another clock."""
        self._ahead_ms = None
        if ticket.number:
            self.lost[shard] = ticket.number

    def returned(self, shard: int) -> None:
        """Record that Redis has returned the tasks of the lost claim, and will not execute it later."""
        self.lost.pop(shard, None)
