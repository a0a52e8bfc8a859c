"""delayq doctor: each check finds what it is for, and the exit code says how bad it is."""

from __future__ import annotations

import json
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.cli.doctor import reach, rights
from delayq.cli.doctor.findings import Level
from delayq.connection import Address, SyncConnection
from delayq.contract.durability import DurabilitySpec
from delayq.errors import Unavailable
from delayq.protocol.commands import Commands
from delayq.protocol.keys import FORMAT

from tests.redis.commands import on
from tests.redis.state import NOW, Shard, State, shard_on
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq.cli.doctor.findings import Finding

    from tests.servers import RedisServer

DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: 127.0.0.1, port: PORT}}
  handler: {python: {callable: "json:dumps"}}
"""


def findings(url: str, *args: str, code: int = 0) -> dict[str, Any]:
    """What each check found, by name."""
    result = run("doctor", "orders", "--redis", url, "-o", "json", *args)
    assert (result.exit_code, "secret" in result.output) == (code, False), result.output
    return {each["check"]: each for each in json.loads(result.stdout)}


@contextmanager
def user(server: RedisServer, *rules: str) -> Iterator[str]:
    """The URL of a user who may use everything but what the rules take away."""
    with server.client() as redis:
        redis.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", *rules)
        yield f"redis://limited:secret@127.0.0.1:{server.port}"
        redis.execute_command("ACL", "DELUSER", "limited")


def scripts(url: str, asked: DurabilitySpec | None = None) -> Finding:
    with closing(SyncConnection(Address.from_url(url))) as connection:
        return rights.run_scripts(connection, Commands("orders"), asked or DurabilitySpec(), [0])


def test_every_step_is_told_in_words(aof_server: RedisServer, tmp_path: Path) -> None:
    document = tmp_path / "queue.yaml"
    document.write_text(DOCUMENT.replace("PORT", str(aof_server.port)))
    result = run("doctor", str(document))
    checks = [line.split()[:2] for line in result.stdout.splitlines() if line[0] in "✓!✗"]
    assert result.exit_code == 0
    old = aof_server.flavour in ("6.2", "7.0")  # by their version: their packages may have the fix
    assert checks == [
        *(["✓", each] for each in ("document", "redis", "connect", "login", "version")),
        *([["!", "lua"]] if old else []),
        ["✓", "role"],
        *(["✓", each] for each in ("persistence", "eviction", "memory", "latency", "clock", "scripts")),
        ["!", "scanner"],
        ["✓", "tasks"],
        ["✓", "handler"],
    ]


def test_warnings_are_failures_only_when_strict(redis_url: str) -> None:
    found = findings(redis_url)
    assert (found["persistence"]["level"], found["persistence"]["hint"]) == ("warning", "set appendonly yes")
    assert findings(redis_url, "--strict", code=1).keys() == found.keys()


def test_an_unreachable_redis_is_exit_code_4() -> None:
    assert findings("redis://127.0.0.1:1", code=4)["connect"]["message"] == "127.0.0.1:1: connection refused"
    assert "no.such.host.invalid" in findings("redis://no.such.host.invalid", code=4)["connect"]["message"]
    assert findings("unix:///nonexistent", code=4)["connect"]["level"] == "failed"


def test_a_wrong_password_is_told_and_not_shown(redis_server: RedisServer) -> None:
    with user(redis_server) as url:
        assert "spec.redis.auth" in findings(url.replace(":secret@", ":secretly@"), code=4)["login"]["hint"]


@pytest.mark.one_server
def test_tls_to_a_redis_without_is_told_from_one_that_does_not_answer(redis_server: RedisServer) -> None:
    url = redis_server.url.replace("redis://", "rediss://")
    with closing(SyncConnection(replace(Address.from_url(url), timeout_seconds=0.5))) as connection:
        found = reach.login(connection)
    assert found.unreachable
    assert found.message == "Redis answers without TLS at this port, but TLS is configured"
    assert "redis:// instead of rediss://" in found.hint


@pytest.mark.one_server
def test_a_redis_that_does_not_answer_scripts_is_not_called_busy(aof_server: RedisServer) -> None:
    aof_server.pause()
    hasty = replace(Address.from_url(aof_server.url), timeout_seconds=0.5)
    with closing(SyncConnection(hasty)) as connection, pytest.raises(Unavailable):
        rights.run_scripts(connection, Commands("orders"), DurabilitySpec(), [0])
    aof_server.resume()


def test_each_missing_right_is_named_where_redis_can_tell(redis_server: RedisServer) -> None:
    """Before 7.0 nobody can ask, and that is told. `eval` is what asking takes."""
    scripts(redis_server.url)  # so that the server knows the scripts
    if redis_server.version < (7, 0):
        with user(redis_server, "-zadd") as url:
            assert scripts(url).message == f"load and run on 1 of 1 shards; {rights.UNASKED}"
        return
    for name in rights.needed():
        with user(redis_server, f"-{name}") as url:
            found = scripts(url)
            assert (found.level, f"+{name}" in found.hint) == (Level.FAILED, True)
            assert found.message.endswith(f"the user may not use {name}"), name
    with user(redis_server, "-wait") as url:
        assert scripts(url).level is Level.OK, "it is used by clients that want a confirmation"
        assert scripts(url, DurabilitySpec(confirm="Replicated")).message == "the user may not use wait"


def test_a_database_that_the_server_does_not_have_is_told_by_its_number(redis_server: RedisServer) -> None:
    login = findings(redis_server.url.removesuffix("/0") + "/17", code=4)["login"]
    assert "DB index is out of range" in login["message"]
    assert login["hint"].startswith("spec.redis.database is 17, ")


def test_a_clock_that_is_off_is_told_with_what_it_does_and_does_not(redis_server: RedisServer) -> None:
    assert redis_server.clock is not None
    redis_server.clock.set_ms(-90_000)
    found = findings(redis_server.url)["clock"]
    assert found["level"] == "warning"
    assert "behind this machine: no task starts early" in found["message"]


def test_what_the_document_wants_confirmed_is_checked(aof_server: RedisServer, tmp_path: Path) -> None:
    document = tmp_path / "queue.yaml"
    text = DOCUMENT.replace("PORT", str(aof_server.port))
    document.write_text(f"{text}  durability: {{confirm: Replicated}}\n")
    result = run("doctor", str(document))
    assert result.exit_code == 1
    assert "✗ durability  Replicated: 0 of 1 replicas keep up, so every schedule fails" in result.stdout


def test_a_replica_is_an_error(redis_server: RedisServer) -> None:
    with redis_server.client() as redis:
        redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            found = findings(redis_server.url, code=1)
        finally:
            redis.execute_command("REPLICAOF", "NO", "ONE")
    assert found["role"]["message"] == "a replica of 127.0.0.1:1"


@pytest.mark.parametrize(
    ("leases", "level", "said"),
    [
        ({}, "failed", "none claimed within a second, and no worker holds a lease"),
        ({"b:7": NOW - 1}, "failed", "none claimed within a second, and no worker holds a lease"),
        ({"b:7": NOW + 20_000}, "warning", "1 in flight, none claimed"),
    ],
)
def test_overdue_tasks_that_no_worker_claims_are_a_failure_unless_workers_are_busy(
    shard: Shard, leases: dict[str, int], level: str, said: str
) -> None:
    """A dead worker's tasks are in flight for a while: no lease of theirs is kept up."""
    shard.seed(State(delayed={"a": NOW - 60_000}, processing=leases, leader=f"scanner-1 {NOW + 5000}"))
    result = on(shard, "doctor", shard.commands.queue, "-o", "json")
    found = {each["check"]: each for each in json.loads(result.stdout)}
    assert (result.exit_code, found["tasks"]["level"]) == (int(level == "failed"), level)
    assert found["tasks"]["message"] == f"1 task due, the oldest for 1m, {said}"
    assert found["scanner"]["message"] == "1 of 1 shards led, by scanner-1"


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ('{python: {callable: "shop_of_doctor:cancel"}}', ""),
        ('{python: {callable: "shop_of_doctor:refund"}}', 'has no attribute "refund"'),
        ('{python: {callable: "no_such_shop:cancel"}}', 'no module "no_such_shop"'),
        ("{exec: {command: [no-such-command]}}", '"no-such-command" is not on the PATH'),
        ("{exec: {command: [cat]}}", ""),
    ],
)
@pytest.mark.one_server
def test_a_handler_that_no_worker_could_start_with_is_a_failure(
    aof_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, handler: str, said: str
) -> None:
    """Its code lies beside the document, wherever doctor is run; what it prints is no result of doctor's."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "shop_of_doctor.py").write_text("print('loaded')\n\ndef cancel(task): ...\n")
    document = tmp_path / "queue.yaml"
    text = DOCUMENT.replace("PORT", str(aof_server.port))
    document.write_text(text.replace('{python: {callable: "json:dumps"}}', handler))
    result = run("doctor", str(document), "-o", "json")
    found = {each["check"]: each for each in json.loads(result.stdout)}
    assert found["handler"]["level"] == ("failed" if said else "ok")
    assert said in found["handler"]["message"]
    assert result.exit_code == (1 if said else 0)


def test_a_newer_format_is_named_with_what_this_version_does_not_do(orders: Shard) -> None:
    orders.redis.hset(orders.keys.stats, "format", FORMAT + 1)
    found = findings(orders.server.url)
    assert found["format"]["level"] == "warning"
    assert f"in format {FORMAT + 1}; this delayq reads formats up to {FORMAT}" in found["format"]["message"]
    orders.redis.hset(orders.keys.stats, "format", FORMAT)
    assert "format" not in findings(orders.server.url)


def test_a_document_that_is_wrong_is_a_failed_check(tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(DOCUMENT.replace("PORT", "many"))
    result = run("doctor", str(tmp_path / "queue.yaml"))
    assert result.exit_code == 1
    assert "✗ document" in result.stdout
    assert "expected a whole number from 1 to 65535" in result.stdout


@pytest.fixture
def orders(redis_server: RedisServer) -> Iterator[Shard]:
    with shard_on(redis_server, "orders", shards=2) as shard:
        yield shard


@pytest.mark.parametrize(
    ("name", "kind", "next_step"),
    [
        ("delayed", "sorted set", "reapers restore the index entries of its tasks"),
        ("tasks", "hash", "restore a backup"),
        ("wake", "list", "it stores no tasks"),
        ("rate", "string", "it stores no tasks"),
    ],
)
def test_a_key_of_somebody_elses_is_named_with_what_to_do(
    orders: Shard, name: str, kind: str, next_step: str
) -> None:
    orders.redis.delete(key := getattr(orders.commands.shards[1], name))
    orders.redises[1].geoadd(key, (1, 1, "x")) if kind == "list" else orders.redises[1].lpush(key, "x")
    found = findings(orders.server.url, "--shards", "2", code=1)["keys"]
    assert (
        found["message"] == f"{key} is no {kind}: another program wrote there, and its shard cannot continue"
    )
    assert next_step in found["hint"]


def test_counters_that_hold_no_number_are_named_and_are_no_failure(orders: Shard) -> None:
    stats = orders.keys.stats
    orders.redis.hset(stats, mapping={"claimed": "x", "acked": "7", "confirmations": ""})
    found = findings(orders.server.url, "--shards", "2")
    assert found["keys"]["level"] == "warning"
    assert found["keys"]["message"].startswith(f"{stats} holds no number in ")
    named = found["keys"]["message"].partition(" in ")[2].partition(":")[0].split(", ")
    assert sorted(named) == ["claimed", "confirmations"]
    assert found["scripts"]["level"] == "ok"
