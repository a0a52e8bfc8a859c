"""From what Redis tells of itself to the ways in which it may lose tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq import durability

if TYPE_CHECKING:
    from collections.abc import Mapping

SAFE = {"aof_enabled": "1", "aof_last_write_status": "ok", "maxmemory_policy": "noeviction"}


@pytest.mark.parametrize(
    ("facts", "appendfsync", "risks"),
    [
        (SAFE, "everysec", set()),
        (SAFE, "always", set()),
        (SAFE, "no", {"fsync_off"}),
        (SAFE, "", {"unknown"}),
        (SAFE | {"aof_last_write_status": "err"}, "everysec", {"append_only_failing"}),
        (SAFE | {"maxmemory_policy": "allkeys-lru"}, "everysec", {"evicts"}),
        (SAFE | {"maxmemory_policy": "volatile-lru"}, "everysec", set()),
        (SAFE | {"aof_enabled": "0"}, "", {"append_only_off"}),
        ({"aof_enabled": "0", "maxmemory_policy": "allkeys-lfu"}, "no", {"append_only_off", "evicts"}),
        ({}, "", {"unknown"}),
        ({}, "everysec", {"unknown"}),
    ],
)
def test_each_way_to_lose_a_task_is_named(
    facts: Mapping[str, str], appendfsync: str, risks: set[str]
) -> None:
    assert durability.risks(facts, appendfsync) == risks


def test_a_refusal_tells_nothing() -> None:
    assert durability.info(Exception("NOPERM")) == {}
    assert durability.setting(Exception("NOPERM")) == durability.setting([]) == ""


def test_info_is_read_line_by_line() -> None:
    assert durability.info(b"# Persistence\r\naof_enabled:1\r\nx:a:b\r\n") == {"aof_enabled": "1", "x": "a:b"}
    assert durability.setting([b"appendfsync", b"always"]) == "always"
