"""Keys: every key of a shard has one hash tag, and a task's shard never changes."""

from __future__ import annotations

import zlib
from collections import Counter
from unittest.mock import patch

import pytest
from delayq.protocol.keys import Keys, shard_of
from hypothesis import given
from hypothesis import strategies as st

NAMES = (
    *("delayed", "retry", "suspect", "processing", "tasks", "attempts", "dlq", "dlq_info", "followups"),
    *("wake", "alarm", "leader", "isolation", "stats", "scanners", "cursors", "rate"),
    *("shard_map", "moving", "moving_info", "arrived"),
)


def test_keys_are_spelled_as_documented() -> None:
    """Other programs read them: another spelling is another data format. Redis Cluster hashes what is in braces."""
    keys = Keys("delayq", "orders", 3)
    assert [getattr(keys, name) for name in NAMES] == [f"delayq:{{orders:3}}:{name}" for name in NAMES]
    of_a_task = keys.of("order:7")
    assert of_a_task.lock == "delayq:{orders:3}:lock:order:7"
    assert of_a_task.recovery_lock == "delayq:{orders:3}:recovery_lock:order:7"
    assert of_a_task.processing == keys.processing


@pytest.mark.parametrize(
    ("task_id", "shards", "shard"),
    [("a", 1, 0), ("a", 3, 1), ("order-17", 3, 2), ("ü漢", 7, 5), ("a", 16, 14), ("order-17", 256, 212)],
)
def test_a_tasks_shard_is_the_same_in_every_version(task_id: str, shards: int, shard: int) -> None:
    """Another answer after an upgrade would lose every stored task."""
    assert shard_of(task_id, shards) == shard


@pytest.mark.parametrize(
    ("task_id", "hashed"),
    [
        ("@nightly@2026-12-01T02:00:00Z", "@nightly"),
        ("@nightly@2026-12-01T02:00:00.125Z", "@nightly"),
        ("@nightly", "@nightly"),
        ("@bob@example.com", "@bob@example.com"),
        ("bob@2026-12-01T02:00:00Z", "bob@2026-12-01T02:00:00Z"),
    ],
)
def test_an_occurrence_is_where_its_record_is_and_other_ids_with_an_at_sign_stay_where_0_3_0_stored_them(
    task_id: str, hashed: str
) -> None:
    found = zlib.crc32(hashed.encode())
    with patch.object(zlib, "crc32", return_value=found) as crc32:
        shard_of(task_id, 1000)
    crc32.assert_called_once_with(hashed.encode())


@given(st.text(min_size=1), st.integers(1, 64), st.integers(1, 64))
def test_with_more_shards_a_task_stays_or_goes_to_a_new_one(text: str, one: int, other: int) -> None:
    """So a change moves as few tasks as it can, and of dropped shards only."""
    task_id, fewer, more = text.encode(errors="replace").decode(), min(one, other), max(one, other)
    assert shard_of(task_id, more) == shard_of(task_id, fewer) or shard_of(task_id, more) >= fewer


def test_tasks_are_spread_evenly_and_as_few_move_as_can_be() -> None:
    """From 8 to 9 shards: a ninth of them, all to the ninth."""
    counts = Counter(shard_of(f"order-{n}", 8) for n in range(9000))
    assert min(counts.values()) > 1000
    moved = sum(shard_of(f"order-{n}", 8) != shard_of(f"order-{n}", 9) for n in range(9000))
    assert 850 < moved < 1150
