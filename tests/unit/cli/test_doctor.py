"""What the doctor makes of what Redis tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.cli.doctor import server, topology
from delayq.cli.doctor.command import verdict
from delayq.cli.doctor.findings import Level, failed, ok, unreachable, warning
from delayq.connection.place import Place
from delayq.connection.slots import SlotMap
from delayq.contract.durability import DurabilitySpec
from delayq.contract.metrics import DURABILITY_RISKS
from delayq.protocol.commands import Commands
from delayq.protocol.keys import SLOTS
from delayq.scanner.durability import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({"redis_version": "4.0.14"}, Level.FAILED),
        ({"redis_version": "5.0.0"}, Level.WARNING),
        ({"redis_version": "6.0.16"}, Level.WARNING),
        ({"redis_version": "6.2.0"}, Level.OK),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.0"}, Level.OK),
        ({}, Level.WARNING),
    ],
)
def test_redis_5_is_the_oldest_and_6_2_the_oldest_that_is_tested(
    facts: Mapping[str, str], level: Level
) -> None:
    assert server.version(facts).level is level


@pytest.mark.parametrize(
    ("facts", "warned"),
    [
        ({"redis_version": "5.0.14"}, True),
        ({"redis_version": "6.2.19"}, True),
        ({"redis_version": "6.2.20"}, False),
        ({"redis_version": "7.0.15"}, True),
        ({"redis_version": "7.2.11"}, False),
        ({"redis_version": "7.4.5"}, True),
        ({"redis_version": "8.0.4"}, False),
        ({"redis_version": "8.2.1"}, True),
        ({"redis_version": "8.2.2"}, False),
        ({"redis_version": "8.4.0"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.10"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.6"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.3"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.0"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, False),
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


def test_a_cluster_that_stopped_may_lack_a_majority_or_one_slot() -> None:
    stopped = SlotMap((Place("a", 6379),) * SLOTS, frozenset({Place("a", 6379)}), healthy=False)
    found = topology._state(stopped, Commands("orders").shards)
    assert (found.level, found.message.partition(";")[0]) == (Level.FAILED, "cluster_state:fail")
    for said in ("majority of its masters", "redis-cli --cluster check", "cluster-require-full-coverage no"):
        assert said in found.hint


ON = {"aof_enabled": "1"}
EVERYSEC = {"appendfsync": "everysec"}


@pytest.mark.parametrize(
    ("told", "level", "said"),
    [
        (ServerInfo(ON, EVERYSEC), Level.OK, "append-only file on, appendfsync everysec"),
        (ServerInfo(ON), Level.OK, "not known: on the server, redis-cli CONFIG GET appendfsync"),
        (ServerInfo({"aof_enabled": "0"}), Level.WARNING, "append-only file off"),
        (ServerInfo(ON, {"appendfsync": "no"}), Level.WARNING, "appendfsync no"),
        (ServerInfo(ON | {"aof_last_write_status": "err"}, EVERYSEC), Level.FAILED, "could not be written"),
        (
            ServerInfo(ON | {"rdb_last_bgsave_status": "err"}, EVERYSEC),
            Level.FAILED,
            "the last snapshot failed",
        ),
        (ServerInfo(ON | {"aof_last_bgrewrite_status": "err"}, EVERYSEC), Level.WARNING, "it grows"),
        (ServerInfo(ON, EVERYSEC | {"no-appendfsync-on-rewrite": "yes"}), Level.WARNING, "is rewritten"),
    ],
)
def test_what_may_lose_tasks_is_told(told: ServerInfo, level: Level, said: str) -> None:
    [found] = server.persistence(told)
    assert (found.level, said in found.message) == (level, True)


def test_every_risk_of_a_file_is_told_and_the_gravest_first() -> None:
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


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        ("allkeys-lru", "waiting tasks"),
        ("volatile-lru", "locks, so that two hold one"),
        ("volatile-ttl", "locks, so that two hold one"),
    ],
)
def test_a_policy_that_evicts_is_told_by_what_is_lost(policy: str, what: str) -> None:
    found = server.eviction(ServerInfo({"maxmemory_policy": policy}))
    assert (found.level, found.message) == (
        Level.WARNING,
        f"maxmemory-policy {policy}: Redis may evict {what}",
    )


@pytest.mark.parametrize(
    ("appendfsync", "timeout_ms", "level"),
    [
        ("everysec", 1000, Level.WARNING),
        ("everysec", 2999, Level.WARNING),
        ("everysec", 3000, Level.OK),
        ("always", 1000, Level.OK),
    ],
)
def test_a_patience_shorter_than_two_syncs_is_told(appendfsync: str, timeout_ms: int, level: Level) -> None:
    asked = DurabilitySpec(confirm="Fsynced", timeout_milliseconds=timeout_ms)
    told = ServerInfo(ON, {"appendfsync": appendfsync}, waitaof=True)
    assert server.confirmed(told, asked).level is level
    plain = DurabilitySpec(confirm="Replicated", timeout_milliseconds=timeout_ms)
    replica = ServerInfo(ON | {"slave0": "state=online,lag=0"}, {"appendfsync": appendfsync})
    assert server.confirmed(replica, plain).level is Level.OK


def test_what_cannot_be_confirmed_is_told_where_it_is_asked_for() -> None:
    replica = {"slave0": "state=online,lag=0"}
    wanted = DurabilitySpec(confirm="Replicated", replicas=2)
    assert "1 of 2 replicas" in server.confirmed(ServerInfo(ON | replica), wanted).message
    assert server.confirmed(ServerInfo(ON | replica), DurabilitySpec(confirm="Replicated")).level is Level.OK
    fsynced = DurabilitySpec(confirm="Fsynced")
    assert server.confirmed(ServerInfo(ON, EVERYSEC, waitaof=False), fsynced).level is Level.FAILED
    assert (
        server.confirmed(ServerInfo(ON, {"appendfsync": "always"}, waitaof=True), fsynced).level is Level.OK
    )


def test_a_replica_that_lags_is_not_counted_and_told() -> None:
    facts = {"connected_slaves": "2", "slave0": "state=online,lag=0", "slave1": "state=online,lag=60"}
    assert server.role(ServerInfo(facts)).message == "master, 1 replicas, and 1 that do not keep up"


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
