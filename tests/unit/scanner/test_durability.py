"""From what Redis tells of itself to the ways in which it may lose tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.contract.durability import DurabilitySpec
from delayq.scanner import durability
from delayq.scanner.durability import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

SAFE = {"aof_enabled": "1", "aof_last_write_status": "ok", "maxmemory_policy": "noeviction"}
OFF = {"aof_enabled": "0"}
UNSAVED = {"rdb_last_bgsave_status": "err"}
EVERYSEC = {"appendfsync": "everysec"}
ALWAYS = {"appendfsync": "always"}
REPLICA = {"slave0": "ip=10.0.0.7,port=6379,state=online,offset=42,lag=0"}
BARE = DurabilitySpec()


@pytest.mark.parametrize(
    ("facts", "settings", "risks"),
    [
        (SAFE, EVERYSEC, set()),
        (SAFE, ALWAYS, set()),
        (SAFE, {"appendfsync": "no"}, {"fsync_off"}),
        (SAFE, {"appendfsync": "no", "no-appendfsync-on-rewrite": "yes"}, {"fsync_off"}),
        (SAFE, EVERYSEC | {"no-appendfsync-on-rewrite": "yes"}, {"fsync_paused"}),
        (SAFE, {}, {"fsync_unknown"}),
        (SAFE | {"maxmemory_policy": "allkeys-lru"}, {}, {"evicts", "fsync_unknown"}),
        (SAFE | {"aof_last_write_status": "err"}, EVERYSEC, {"append_only_failing"}),
        (SAFE | {"aof_last_bgrewrite_status": "err"}, EVERYSEC, {"rewrite_failing"}),
        (SAFE | {"maxmemory_policy": "allkeys-lru"}, EVERYSEC, {"evicts"}),
        (SAFE | {"maxmemory_policy": "volatile-lru"}, EVERYSEC, {"evicts"}),
        (SAFE | {"maxmemory_policy": "volatile-ttl"}, EVERYSEC, {"evicts"}),
        ({"aof_enabled": "1"}, EVERYSEC, set()),  # what it does not tell
        (OFF, {}, {"append_only_off"}),
        (OFF | {"maxmemory_policy": "allkeys-lfu"}, {"appendfsync": "no"}, {"append_only_off", "evicts"}),
        (OFF | UNSAVED, {"save": ""}, {"append_only_off", "saves_failing"}),
        (SAFE | UNSAVED, EVERYSEC, {"saves_failing"}),  # by default, Redis takes no writes then
        (SAFE | UNSAVED, EVERYSEC | {"save": ""}, set()),
        (SAFE | UNSAVED, EVERYSEC | {"stop-writes-on-bgsave-error": "no"}, set()),
        ({}, {}, {"unknown"}),
        ({}, EVERYSEC, {"unknown"}),
    ],
)
def test_each_way_to_lose_a_task_is_named(
    facts: Mapping[str, str], settings: Mapping[str, str], risks: set[str]
) -> None:
    assert durability.risks(ServerInfo(facts, settings), BARE) == risks


@pytest.mark.parametrize(
    ("lines", "replicas"),
    [
        ({}, 0),
        (REPLICA, 1),
        (REPLICA | {"slave1": "ip=h,port=1,state=online,offset=42,lag=10,type=replica"}, 2),
        (REPLICA | {"slave1": "ip=h,port=1,state=online,offset=42,lag=11"}, 1),
        (REPLICA | {"slave1": "ip=h,port=1,state=wait_bgsave,offset=0,lag=0"}, 1),
        ({"slave_read_only": "1", "connected_slaves": "7"}, 0),
    ],
)
def test_replicas_count_while_they_keep_up(lines: dict[str, str], replicas: int) -> None:
    assert ServerInfo(SAFE | lines).replicas == replicas


@pytest.mark.parametrize(("wanted", "risks"), [(1, set()), (2, {"replicas_missing"})])
def test_fewer_replicas_than_asked_for_are_a_risk(wanted: int, risks: set[str]) -> None:
    asked = DurabilitySpec(confirm="Replicated", replicas=wanted)
    assert durability.risks(ServerInfo(SAFE | REPLICA, EVERYSEC), asked) == risks
    assert durability.risks(ServerInfo(SAFE | REPLICA, EVERYSEC), DurabilitySpec(replicas=wanted)) == set()


@pytest.mark.parametrize(
    ("facts", "settings", "waitaof", "confirms"),
    [
        (SAFE, EVERYSEC, True, True),
        (SAFE, EVERYSEC, None, True),
        (SAFE, EVERYSEC, False, False),
        (SAFE, {"appendfsync": "no"}, True, False),
        (SAFE | OFF, EVERYSEC, True, False),
        (SAFE, {}, True, True),
    ],
)
def test_a_disk_that_confirms_nothing_is_a_risk_where_it_is_asked_to(
    facts: Mapping[str, str],
    settings: Mapping[str, str],
    waitaof: bool | None,  # noqa: FBT001  the example
    *,
    confirms: bool,
) -> None:
    reported = ServerInfo(facts, settings, waitaof)
    found = durability.risks(reported, DurabilitySpec(confirm="Fsynced"))
    assert ("fsync_unconfirmed" in found) is not confirms
    assert "fsync_unconfirmed" not in durability.risks(reported, BARE)


def test_what_redis_tells_is_read_and_a_refusal_tells_nothing() -> None:
    about = b"# Persistence\r\naof_enabled:1\r\nx:a:b\r\n"
    settings: list[object] = [[b"appendfsync", b"always"], [], [b"save", b""], Exception("NOPERM")]
    for command, allowed in (([None], False), ([], False), ([[b"waitaof", 4]], True)):
        assert durability.server_info([about, command, *settings]) == ServerInfo(
            {"aof_enabled": "1", "x": "a:b"}, {"appendfsync": "always", "save": ""}, allowed
        )
    assert durability.server_info([Exception("NOPERM")] * len(durability.QUESTIONS)) == ServerInfo(
        {}, {}, None
    )
