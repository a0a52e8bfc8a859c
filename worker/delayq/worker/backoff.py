"""The delay before the next attempt of a failed task. Pure; the caller passes the random number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq.contract import Backoff, Exponential


def delay_ms(failures: int, policy: Backoff, rand: float) -> int:
    """Return the ms to wait after the `failures`-th failure (1 for the first); `rand` is in [0, 1).

    Listed delays apply in order, the last one repeats: [60, 300, 900] gives 60 s, 300 s, 900 s, 900 s, …
    """
    if policy.exponential is not None:
        return _exponential_ms(failures, policy.exponential, rand)
    delays = policy.delays_seconds or (0,)
    return delays[min(failures, len(delays)) - 1] * 1000


def _exponential_ms(failures: int, policy: Exponential, rand: float) -> int:
    """10 s, factor 200 %, cap 3600 s: 10, 20, 40, … 3600; jitter of 20 % subtracts up to a fifth."""
    cap_ms = policy.max_seconds * 1000
    # Every cap is reached after 64 doublings; a larger exponent could overflow.
    grown = policy.initial_seconds * 1000 * (policy.factor_percent / 100) ** min(failures - 1, 64)
    return int(min(grown, cap_ms) * (1 - policy.jitter_percent / 100 * rand))
