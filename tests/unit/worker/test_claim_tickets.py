"""What claims carry: until when Redis may execute them, by its clock, and which of them were lost."""

from __future__ import annotations

from delayq.protocol.results import Ticket
from delayq.worker.claim_tickets import ClaimTickets

HOUR_MS = 3_600_000


def test_a_claim_may_be_executed_for_some_seconds_from_when_it_is_sent_once_the_time_is_known() -> None:
    """The first one asks for the time, and each reply tells it anew: Redis' clock may step."""
    claims = ClaimTickets()
    assert claims.ticket(10.0, 2.5) == Ticket(claims.claimer, 0, 0)
    claims.replied(1_000_000, 10.0)
    assert claims.ticket(10.0, 2.5) == Ticket(claims.claimer, 1, 1_002_500)
    assert claims.ticket(70.0, 2.5) == Ticket(claims.claimer, 2, 1_062_500)
    for step_ms in (-HOUR_MS, HOUR_MS):
        claims.replied(1_000_000 + step_ms, 20.0)
        assert claims.ticket(20.0, 2.5).not_after_ms == 1_002_500 + step_ms


def test_after_a_failure_the_time_is_asked_for_again() -> None:
    """Another server may have taken over, whose clock differs."""
    claims = ClaimTickets()
    claims.replied(1_000_000, 10.0)
    claims.failed(3, claims.ticket(10.0, 2.5))
    asks = claims.ticket(11.0, 2.5)
    assert (claims.lost, asks.not_after_ms) == ({3: 1}, 0)
    claims.failed(3, asks)
    assert claims.lost == {3: 1}, "a claim that only asks for the time takes nothing"
    claims.returned(3)
    assert claims.lost == {}
    claims.replied(5_000_000, 12.0)
    assert claims.ticket(12.0, 2.5) == Ticket(claims.claimer, 2, 5_002_500)
