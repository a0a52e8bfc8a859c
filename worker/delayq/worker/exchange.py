"""What a worker sends to Redis in one round trip, an exchange, and over which connection."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.errors import DelayQError, Unavailable
from delayq.worker.claim_tickets import ClaimTickets

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Call
    from delayq.protocol.results import Claimed, Ticket
    from delayq.worker.settlements import Settlement
    from delayq.worker.slots import Reservation

# Before exchanges overlap again over a connection that failed while another one worked.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0


def is_lost(answer: object) -> bool:
    """Whether Redis' reply is not known, such as for want of memory: it may have executed the call."""
    return isinstance(answer, Exception) and (
        isinstance(answer, Unavailable) or not isinstance(answer, DelayQError)
    )


class ClaimConnection:
    """A connection, with at most one exchange under way, and the tickets of the claims that it carries."""

    def __init__(self, connection: AsyncConnection) -> None:
        """Connect with the first exchange."""
        self.connection, self.tickets = connection, ClaimTickets()
        self.failures = 0  # in a row, of whole round trips
        self.retry_at = 0.0  # when exchanges may overlap over it again; monotonic seconds
        self._suspended = 0  # times in a row

    def ticket(self) -> Ticket:
        """Return the ticket of a claim that Redis may execute for less than the timeout of the reply."""
        return self.tickets.ticket(time.monotonic(), self.connection.address.timeout_seconds / 2)

    async def answers(self, calls: list[Call[Any]]) -> list[Any]:
        """Return each call's answer or error; an error of the whole round trip is repeated for every call."""
        try:
            answers = await self.connection.answers(calls)
        except Exception as error:  # noqa: BLE001 -- the claim loop raises it after it has restored outbox and slots
            self.failures += 1
            return [error] * len(calls)
        # A connection to a Cluster does not raise: it answers each call with the outage of its server.
        if all(map(is_lost, answers)):
            self.failures += 1
        else:
            self.failures = self._suspended = 0
        return answers

    def suspend(self, now: float) -> bool:
        """Let no exchange overlap over it for a while; returns whether this is the first time in a row."""
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._suspended, 10))
        self.retry_at, self._suspended = now + pause, self._suspended + 1
        return self._suspended == 1


class Claim(NamedTuple):
    """A claim to send."""

    call: Call[Claimed]
    shard: int
    limit: int
    ticket: Ticket
    isolated: bool = False  # of suspects


@dataclass(slots=True)
class Leased:
    """The tasks of an answered claim, not yet started; `isolated`: they are suspects."""

    answer: Claimed
    sent_at: float  # monotonic seconds
    isolated: bool
    done: int = 0  # tasks that were started, or will be released


class LostClaim(NamedTuple):
    """A claim whose reply was lost: its tasks are returned to their indexes."""

    tickets: ClaimTickets
    shard: int
    number: int


class Exchange(NamedTuple):
    """A round trip under way."""

    over: ClaimConnection
    settling: list[tuple[Call[Any], list[Settlement]]]
    lost: list[LostClaim]
    claiming: list[Claim]
    reservation: Reservation
    sent_at: float  # monotonic seconds
    answering: Coroutine[Any, Any, list[Any]] | asyncio.Future[list[Any]]  # the latter once it is sent
    ahead: bool = False  # another one was under way when it was sent

    def settles(self, shard: int) -> bool:
        """Return whether it settles tasks of this shard."""
        return any(batch[0].lease.shard == shard for _, batch in self.settling)
