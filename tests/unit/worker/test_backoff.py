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


@pytest.mark.parametrize(("failures", "seconds"), [(1, 60), (2, 300), (3, 900), (4, 900), (1000, 900)])
def test_listed_delays_go_in_turn_and_the_last_repeats(failures: int, seconds: int) -> None:
    assert delay_ms(failures, LISTED, 0.999) == seconds * 1000


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 10), (2, 20), (3, 40), (9, 2560), (10, 3600), (11, 3600), (10_000, 3600)]
)
def test_exponential_delays_grow_to_their_cap(failures: int, seconds: int) -> None:
    assert delay_ms(failures, exponential(10, 3600, 200, 0), 0.5) == seconds * 1000


@pytest.mark.parametrize(("rand", "milliseconds"), [(0.0, 10_000), (0.5, 9000), (0.999_999, 8000)])
def test_jitter_only_takes_away(rand: float, milliseconds: int) -> None:
    assert delay_ms(1, exponential(10, 3600, 200, 20), rand) == milliseconds


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
