"""Backoff is arithmetic: failures, a policy and a random number make a delay."""

from __future__ import annotations

import pytest
from delayq.contract import Backoff, Exponential
from delayq.worker.backoff import delay_ms
from hypothesis import given
from hypothesis import strategies as st

LISTED = Backoff(delays_seconds=(60, 300, 900))


def exponential(initial: int, most: int, factor: int, jitter: int) -> Backoff:
    return Backoff(
        exponential=Exponential(
            initial_seconds=initial, max_seconds=most, factor_percent=factor, jitter_percent=jitter
        )
    )


@pytest.mark.parametrize(
    ("policy", "failures", "rand", "milliseconds"),
    [
        (LISTED, 1, 0.999, 60_000),
        (LISTED, 2, 0.999, 300_000),
        (LISTED, 3, 0.999, 900_000),
        (LISTED, 1000, 0.999, 900_000),
        (exponential(10, 3600, 200, 0), 1, 0.5, 10_000),
        (exponential(10, 3600, 200, 0), 9, 0.5, 2_560_000),
        (exponential(10, 3600, 200, 0), 10, 0.5, 3_600_000),
        (exponential(10, 3600, 200, 0), 10_000, 0.5, 3_600_000),
        (exponential(10, 3600, 200, 20), 1, 0.0, 10_000),
        (exponential(10, 3600, 200, 20), 1, 0.999_999, 8000),
    ],
)
def test_listed_delays_go_in_turn_and_exponential_ones_grow_to_their_cap_and_jitter_only_takes_away(
    policy: Backoff, failures: int, rand: float, milliseconds: int
) -> None:
    assert delay_ms(failures, policy, rand) == milliseconds


@given(
    st.integers(1, 10**9),
    st.integers(1, 86_400),
    st.integers(1, 86_400),
    st.integers(100, 1000),
    st.integers(0, 100),
    st.floats(0, 1, exclude_max=True),
)
def test_no_delay_is_negative_or_above_its_cap(  # noqa: PLR0917  one per argument of the policy
    failures: int, initial: int, most: int, factor: int, jitter: int, rand: float
) -> None:
    assert 0 <= delay_ms(failures, exponential(initial, most, factor, jitter), rand) <= most * 1000
