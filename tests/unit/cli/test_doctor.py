"""What the doctor concludes from the settings of Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.cli.doctor import server
from delayq.cli.doctor.findings import Level
from delayq.contract.durability import DurabilitySpec
from delayq.contract.metrics import DURABILITY_RISKS
from delayq.scanner.durability import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq.cli.doctor.findings import Finding


@pytest.mark.parametrize(
    ("facts", "warned"),
    [
        ({"redis_version": "8.2.1"}, True),
        ({"redis_version": "8.2.2"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.3"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.0"}, False),
        ({}, False),
    ],
)
def test_a_build_older_than_the_fix_of_its_lua_is_a_warning_with_how_to_find_out(
    facts: Mapping[str, str], *, warned: bool
) -> None:
    found = list(server.vulnerable_lua(facts))
    assert [each.level for each in found] == [Level.WARNING] * warned
    for each in found:
        assert "CVE-2025-49844" in each.message
        assert "changelog" in each.hint


ON = {"aof_enabled": "1"}
EVERYSEC = {"appendfsync": "everysec"}


def test_every_risk_of_a_file_is_reported_and_the_gravest_first() -> None:
    [fine] = server.persistence(ServerInfo(ON))
    assert fine.level is Level.OK
    assert "not known: on the server, redis-cli CONFIG GET appendfsync" in fine.message
    bad = {
        "aof_last_write_status": "err",
        "rdb_last_bgsave_status": "err",
        "aof_last_bgrewrite_status": "err",
    }
    found = list(server.persistence(ServerInfo(ON | bad, {"appendfsync": "no"})))
    assert [each.level for each in found] == [Level.FAILED, Level.FAILED, Level.WARNING, Level.WARNING]


def test_every_risk_has_a_check() -> None:
    elsewhere = {"evicts", "fsync_unconfirmed", "fsync_unknown", "replicas_missing", "unknown"}
    assert {*server._PERSISTENCE, *elsewhere} == set(DURABILITY_RISKS)


REPLICA = {"slave0": "state=online,lag=0"}
FSYNCED = {"confirm": "Fsynced"}
CONFIRMING = ServerInfo(ON, EVERYSEC, waitaof=True)


@pytest.mark.parametrize(
    ("reported", "wanted", "level", "said"),
    [
        (ServerInfo(ON, EVERYSEC, waitaof=False), FSYNCED, Level.FAILED, "cannot confirm"),
        (ServerInfo(ON, {"appendfsync": "always"}, waitaof=True), FSYNCED, Level.OK, "Fsynced"),
        (CONFIRMING, FSYNCED | {"timeout_milliseconds": 2999}, Level.WARNING, "often takes longer"),
        (CONFIRMING, FSYNCED | {"timeout_milliseconds": 3000}, Level.OK, "Fsynced"),
    ],
)
def test_what_the_document_wants_confirmed_has_to_be_possible(
    reported: ServerInfo, wanted: dict[str, Any], level: Level, said: str
) -> None:
    found = server.confirmed(reported, DurabilitySpec(**wanted))
    assert (found.level, said in found.message) == (level, True)


LAGGING = {"connected_slaves": "2", "slave1": "state=online,lag=60", **REPLICA}


@pytest.mark.parametrize(
    ("check", "facts", "level", "said"),
    [
        (server.version, {"redis_version": "4.0.14"}, Level.FAILED, "Redis 4.0.14"),
        (server.version, {"redis_version": "6.0.16"}, Level.WARNING, "Redis 6.0.16"),
        (server.version, {"redis_version": "7.2.4", "valkey_version": "9.0.0"}, Level.OK, "Valkey 9.0.0"),
        (server.version, {}, Level.WARNING, "unknown"),
        (server.memory, {"used_memory": "85", "maxmemory": "100"}, Level.WARNING, "used"),
        (server.memory, {"used_memory": "100", "maxmemory": "100"}, Level.FAILED, "used"),
        (server.eviction, {"maxmemory_policy": "allkeys-lru"}, Level.WARNING, "may evict waiting tasks"),
        (server.eviction, {"maxmemory_policy": "volatile-ttl"}, Level.WARNING, "hold the same one"),
        (server.role, LAGGING, Level.OK, "master, 1 replica, and 1 lagging behind"),
    ],
)
def test_a_fact_is_compared_with_what_delayq_needs_and_its_consequence_is_reported(
    check: Callable[[Any], Finding], facts: Mapping[str, str], level: Level, said: str
) -> None:
    found = check(facts if check in {server.version, server.memory} else ServerInfo(facts))
    assert (found.level, said in found.message) == (level, True)
