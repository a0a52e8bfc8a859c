"""Shares of a limit: whole, even, and together exactly the limit."""

from __future__ import annotations

from delayq.contract import Limits
from delayq.protocol.quota import part, quota, room
from hypothesis import given
from hypothesis import strategies as st

SHARDS = st.integers(1, 256)


@given(st.integers(1, 10**7), SHARDS)
def test_the_parts_of_all_shards_add_up_to_the_limit_and_are_even(limit: int, shards: int) -> None:
    """A limit below the number of shards cannot be had, for no shard may be without: then each has one."""
    parts = [part(limit, shard, shards) for shard in range(shards)]
    assert sum(parts) == max(limit, shards)
    assert max(parts) - min(parts) <= 1
    assert min(parts) >= 1


@given(st.integers(1, 10**6), SHARDS)
def test_the_rates_of_all_shards_add_up_to_the_rate(rate: int, shards: int) -> None:
    limits = Limits(rate_per_second=rate)
    quotas = [quota(limits, shard, shards) for shard in range(shards)]
    assert abs(sum(1e6 / float(each["interval_us"]) for each in quotas) - rate) <= rate * 1e-5
    assert sum(int(each["burst"]) for each in quotas) == max(rate, shards)


def test_an_absent_limit_is_absent() -> None:
    nothing = {"interval_us": "0", "burst": 0, "most": 0}
    assert quota(None, 0, 4) == quota(Limits(), 3, 4) == nothing
    assert quota(Limits(max_in_flight=9), 0, 4) == nothing | {"most": 3}
    limited = nothing | {"interval_us": "400000.000000", "burst": 1}
    assert quota(Limits(rate_per_second=10, burst=5), 3, 4) == limited


@given(SHARDS)
def test_without_max_bytes_each_shard_has_room_for_the_largest_task_that_a_document_allows(
    shards: int,
) -> None:
    limits = Limits(max_payload_bytes=16_777_216, max_header_bytes=65_536)
    assert room(limits, shards)["max_bytes"] > limits.max_payload_bytes + limits.max_header_bytes + 1024
    assert room(Limits(), 1)["max_bytes"] == 2 << 30
