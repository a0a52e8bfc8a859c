"""What the doctor makes of what Redis tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.cli.doctor import server
from delayq.cli.doctor.command import verdict
from delayq.cli.doctor.findings import Level, failed, ok, unreachable, warning

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({"redis_version": "4.0.14"}, Level.FAILED),
        ({"redis_version": "5.0.0"}, Level.OK),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.0"}, Level.OK),
        ({}, Level.WARNING),
    ],
)
def test_redis_5_is_the_oldest(facts: Mapping[str, str], level: Level) -> None:
    assert server.version(facts).level is level


def test_what_may_lose_tasks_is_a_warning() -> None:
    assert server.persistence({"aof_enabled": "1"}, "no").level is Level.WARNING
    assert (
        server.persistence({"aof_enabled": "1", "aof_last_write_status": "err"}, "always").level
        is Level.FAILED
    )
    assert server.persistence({"aof_enabled": "1"}, "").level is Level.OK
    assert server.eviction({"maxmemory_policy": "allkeys-lru"}).message.endswith(
        "Redis may evict waiting tasks"
    )


@pytest.mark.parametrize(("used", "level"), [(10, Level.OK), (85, Level.WARNING), (100, Level.FAILED)])
def test_memory_is_looked_at_before_it_is_full(used: int, level: Level) -> None:
    assert server.memory({"used_memory": str(used), "maxmemory": "100"}).level is level


@pytest.mark.parametrize("strict", [False, True])
def test_the_worst_finding_is_the_exit_code(strict: bool) -> None:  # noqa: FBT001  the example
    fine, doubtful = ok("a", ""), warning("b", "", "")
    bad, gone = failed("c", "", ""), unreachable("d", "", "")
    assert verdict([fine], strict=strict) == 0
    assert verdict([fine, doubtful], strict=strict) == int(strict)
    assert verdict([fine, bad], strict=strict) == 1
    assert verdict([bad, gone], strict=strict) == 4
