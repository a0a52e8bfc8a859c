"""delayq doctor: each check finds what it is for, and the exit code says how bad it is."""

from __future__ import annotations

import json
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from delayq.api.access.named_tokens import hash_of, new_token
from delayq.cli import status, target
from delayq.cli.doctor import reach, rights
from delayq.cli.doctor.findings import Level
from delayq.cli.refused import refused_sentence
from delayq.cli.snapshot import take_snapshot
from delayq.cli.target import resolve
from delayq.connection import Address, SyncConnection
from delayq.contract.durability import DurabilitySpec
from delayq.contract.outages import remedy
from delayq.errors import Unavailable
from delayq.protocol.commands import Commands
from delayq.protocol.keys import FORMAT
from delayq.protocol.shard_map import ShardMap

from tests.redis.commands import LATER, answer, document, on
from tests.redis.state import NOW, Shard, State, one_server, seed, shard_on
from tests.redis.test_parked import ONE
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq.cli.doctor.findings import Finding

    from tests.servers import RedisServer

SUSPENDED = "suspended by the document: spec.suspend is true"
SETTLED, ANNOUNCED, MOVING = ShardMap(1, 2, 2, 2, 2), ShardMap(2, 2, 2, 3, 3), ShardMap(3, 3, 2, 3, 3)


def findings(*args: str, code: int = 0) -> dict[str, Any]:
    """What each check found, by name."""
    result = run("doctor", *args, "-o", "json")
    assert (result.exit_code, "secret" in result.output) == (code, False), result.output
    return {each["check"]: each for each in json.loads(result.stdout)}


def found_at(url: str, *args: str, code: int = 0) -> dict[str, Any]:
    return findings("orders", "--redis", url, *args, code=code)


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


def test_every_step_is_described(aof_server: RedisServer, tmp_path: Path) -> None:
    result = run("doctor", document(tmp_path, aof_server.port))
    checks = [line.split()[:2] for line in result.stdout.splitlines() if line[0] in "✓!✗"]
    assert result.exit_code == 0
    mark = next(mark for mark, check in checks if check == "latency")  # a busy machine is slow
    old = aof_server.flavour in ("6.2", "7.0")  # by their version: their packages may have the fix
    assert checks == [
        *(["✓", each] for each in ("document", "redis", "connect", "login", "version")),
        *([["!", "lua"]] if old else []),
        ["✓", "role"],
        *(["✓", each] for each in ("persistence", "eviction", "memory")),
        [mark, "latency"],
        *(["✓", each] for each in ("clock", "scripts")),
        ["!", "scanner"],
        ["✓", "tasks"],
        ["✓", "handler"],
    ]
    wanted = document(tmp_path, aof_server.port, "  durability: {confirm: Replicated}\n")
    message = findings(wanted, code=1)["durability"]["message"]
    assert message == "Replicated: 0 of 1 replica keeping up, so every schedule fails"


def test_what_is_wrong_with_a_server_or_a_login_is_named(redis_server: RedisServer) -> None:
    assert redis_server.clock is not None
    url = redis_server.url
    found = found_at(url)
    assert (found["persistence"]["level"], found["persistence"]["hint"]) == ("warning", "set appendonly yes")
    assert found_at(url, "--strict", code=1).keys() == found.keys()  # where warnings are failures
    with user(redis_server) as limited:
        wrong = limited.replace(":secret@", ":secretly@")
        assert "spec.redis.auth" in found_at(wrong, code=4)["login"]["hint"]
    login = found_at(url.removesuffix("/0") + "/17", code=4)["login"]
    assert "DB index is out of range" in login["message"]
    assert login["hint"] == remedy("no_database").cure
    with redis_server.client() as redis:
        most = redis.config_get("maxclients")["maxclients"]
        redis.config_set("maxclients", 1)
        try:
            assert found_at(url, code=4)["login"]["hint"] == remedy("max_clients").cure
        finally:
            redis.config_set("maxclients", most)
    redis_server.clock.set_ms(-90_000)
    clock = found_at(url)["clock"]
    assert (clock["level"], "behind this machine: no task starts early" in clock["message"]) == (
        "warning",
        True,
    )
    with redis_server.client() as redis:
        redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            assert found_at(url, code=1)["role"]["message"] == "a replica of 127.0.0.1:1"
        finally:
            redis.execute_command("REPLICAOF", "NO", "ONE")


def test_an_unreachable_redis_is_exit_code_4() -> None:
    assert found_at("redis://127.0.0.1:1", code=4)["connect"]["message"] == "127.0.0.1:1: connection refused"
    assert "no.such.host.invalid" in found_at("redis://no.such.host.invalid", code=4)["connect"]["message"]
    assert found_at("unix:///nonexistent", code=4)["connect"]["level"] == "failed"


@pytest.mark.one_server
def test_a_redis_without_tls_or_without_answers_differs_from_an_unreachable_one(
    aof_server: RedisServer,
) -> None:
    hasty = replace(Address.from_url(aof_server.url.replace("redis://", "rediss://")), timeout_seconds=0.5)
    with closing(SyncConnection(hasty)) as connection:
        found = reach.login(connection)
    assert found.unreachable
    assert found.message == "Redis answers without TLS at this port, but TLS is configured"
    assert "redis:// instead of rediss://" in found.hint
    aof_server.pause()
    hasty = replace(Address.from_url(aof_server.url), timeout_seconds=0.5)
    with closing(SyncConnection(hasty)) as connection, pytest.raises(Unavailable):  # it is not called busy
        rights.run_scripts(connection, Commands("orders"), DurabilitySpec(), [0])
    aof_server.resume()


def test_each_missing_right_is_named_where_redis_can_tell(redis_server: RedisServer) -> None:
    """Redis before 7.0 has no command that tells, and doctor says so. Asking takes the right to `eval`."""
    scripts(redis_server.url)  # so that the server has the scripts
    if redis_server.version < (7, 0):
        with user(redis_server, "-zadd") as url:
            assert scripts(url).message == f"load and run on 1 of 1 shard; {rights.UNASKED}"
        return
    for name in rights.needed():
        with user(redis_server, f"-{name}") as url:
            found = scripts(url)
            assert (found.level, f"+{name}" in found.hint) == (Level.FAILED, True)
            assert found.message.endswith(f"the user may not use {name}"), name
    with user(redis_server, "-wait") as url:
        assert scripts(url).level is Level.OK, "it is used by clients that want a confirmation"
        assert scripts(url, DurabilitySpec(confirm="Replicated")).message == "the user may not use wait"


def test_parked_tasks_are_named_with_their_kinds(orders: Shard) -> None:
    orders.seed(ONE.but(leader=f"scanner-1 {NOW + 5000}"))
    found = found_at(orders.server.url, code=0)["parked"]
    assert (found["level"], found["message"].partition(" (1,")[0]) == (
        "warning",
        "1 parked: no worker knew their kind or version: push 1",
    )
    hint = " ID, with IDs of delayq task list orders --redis URL --state parked"
    assert found["hint"].endswith(f"delayq task cancel orders --redis URL{hint}")


def test_tasks_whose_arguments_the_workers_refuse_are_named_also_by_status(orders: Shard) -> None:
    why = "task push: to: missing argument"
    waits = f"waits for a worker that its arguments fit, for 60 s of 3600 s so far, and for 30 s more: {why}"
    retry = {"push:a": NOW + 60_000, "push:b": NOW + 30_000, "c": NOW + 10_000}
    attempts = {"push:a": f"0 0 {waits}", "push:b": f"1 0 @{NOW + 30_000} {waits}", "c": "1 0 boom"}
    orders.seed(State(retry=retry, attempts=attempts, leader=f"scanner-1 {NOW + 5000}"))
    said = f"2 of 3 sampled retrying tasks wait for a worker that their arguments fit, such as push:b: {why}"
    found = found_at(orders.server.url, code=0)["arguments"]
    assert (found["level"], found["message"]) == ("warning", said)
    assert f"! {said} (delayq task list orders --state retrying)\n" in on(orders, "status", "orders").stderr
    orders.seed(State(retry={"c": NOW}, attempts={"c": "1 0 boom"}, leader=f"scanner-1 {NOW + 5000}"))
    assert "arguments" not in found_at(orders.server.url, code=0)
    assert on(orders, "status", "orders").stderr == ""


def test_schedules_whose_arguments_the_workers_refuse_are_named(orders: Shard) -> None:
    """Nothing else shows it for an hour: their last run is this one, and none is missed."""
    ids = [f"@{name}@2030-01-01T00:00:00Z" for name in ("nightly", "nightly.eu")]
    waits = "0 0 waits for a worker that its arguments fit, for 0 s of 3600 s so far, and for 30 s more: x"
    orders.seed(State(retry=dict.fromkeys(ids, NOW + 9), attempts=dict.fromkeys(ids, waits)))
    found = found_at(orders.server.url)["arguments"]
    assert "2 of 2 sampled retrying tasks wait (of schedules nightly, nightly.eu) for" in found["message"]
    assert "correct the schedule that has them" in found["hint"]


def test_watching_lists_some_retrying_tasks_until_it_has_found_refused_ones(orders: Shard) -> None:
    ids = [f"t{n:02}" for n in range(30)]
    waits = "0 0 waits for a worker that its arguments fit, so far: x"
    orders.seed(State(retry=dict.fromkeys(ids, NOW + 9), attempts=dict.fromkeys(ids, waits)))
    url, shards = orders.server.url, range(20)
    with closing(SyncConnection(Address.from_url(url))) as connection:
        said = refused_sentence(connection, Commands("orders", shards=20), shards)
        assert said.startswith("10 of 10 sampled"), "one of the 20 shards has tasks"
    with resolve("orders", redis=url, shards=None, key_prefix=None).client() as client:
        first = status.refused(client, take_snapshot(client), [])
        assert first[0].startswith("! 30 of 30 sampled")
        orders.seed(State(retry={"a": NOW + 9}, attempts={"a": waits}))
        assert status.refused(client, take_snapshot(client), first) == first


def test_overdue_tasks_that_no_worker_claims_are_a_failure_unless_workers_are_busy(orders: Shard) -> None:
    """A dead worker's tasks are in flight for a while: no lease of theirs is extended."""
    idle = "none claimed within a second, and no worker holds a lease"
    for leases, level, said in (
        ({"b:7": NOW - 1}, "failed", idle),
        ({"b:7": NOW + 20_000}, "warning", "1 in flight, none claimed"),
    ):
        orders.seed(State(delayed={"a": NOW - 60_000}, processing=leases, leader=f"scanner-1 {NOW + 5000}"))
        found = found_at(orders.server.url, code=int(level == "failed"))
        assert found["tasks"]["level"] == level
        assert found["tasks"]["message"] == f"1 task due, the oldest for 1m, {said}"
        assert found["scanner"]["message"] == "1 of 1 shard led, by scanner-1"


def test_on_kubernetes_it_names_commands_of_the_plugin(
    orders: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod: there `delayq run` is not the remedy."""
    path = document(tmp_path, one_server(orders).port)
    orders.seed(State(delayed={"a": NOW - 60_000}))
    assert "start delayq run" in findings(path, code=1)["tasks"]["hint"]
    monkeypatch.setattr(target, "CONFIG_FILE", path)
    assert "start delayq run" in findings(path, code=1)["tasks"]["hint"], "a container without Kubernetes"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    found = findings(path, code=1)
    assert found["tasks"]["hint"].startswith("no worker serves this queue: see kubectl dq status orders;")
    assert found["scanner"]["hint"] == "tasks may start 2 s late: see kubectl dq status orders"
    held = document(tmp_path, one_server(orders).port, "  suspend: true\n")
    assert findings(held)["suspend"]["hint"] == "kubectl dq resume orders"


def test_a_blocked_event_loop_is_named_and_more_workers_are_not_advised(orders: Shard) -> None:
    """It is forgotten after ten minutes."""
    orders.seed(State(delayed={"late": NOW - 10_000}, processing={"busy:7": NOW + 60_000}))
    assert found_at(orders.server.url)["tasks"]["hint"] == "every slot is busy: more workers"
    assert orders.run(orders.commands.note_blocked(0)) == NOW
    found = found_at(orders.server.url)
    assert found["event-loop"]["level"] == "warning"
    assert "event_loop_blocked" in found["event-loop"]["hint"]
    assert found["tasks"]["hint"] == "see event-loop above"
    orders.seed(State(delayed={"late": NOW - 10_000}, stats={"blocked_at": NOW - 600_000}))
    assert "event-loop" not in found_at(orders.server.url, code=1)


def test_a_limit_or_a_hold_that_keeps_due_tasks_waiting_is_named_and_is_no_fault(
    orders: Shard, tmp_path: Path
) -> None:
    orders.seed(State(delayed={"a": NOW - 60_000}, processing={"b:7": NOW + 30_000}))
    limits = "  limits: {maxInFlight: 1, maxBytes: 1048576}\n"
    path = document(tmp_path, one_server(orders).port, limits)
    result, limit = run("status", path), "held back by spec.limits.maxInFlight = 1 (1 in flight)"
    assert result.stderr == f"note: due tasks are {limit}\n"
    reported = answer(orders, "status", path)
    assert reported["held_by"] == "maxInFlight = 1 (1 in flight)"
    assert reported["bytes"] > 0
    assert "BYTES" in result.stdout
    assert f" {reported['bytes']} " in result.stdout
    found = findings(path)["tasks"]
    assert (found["level"], limit in found["message"]) == ("ok", True)
    unlimited = on(orders, "status", "orders")
    assert (unlimited.stderr, "BYTES" in unlimited.stdout) == ("", False)

    path = document(tmp_path, one_server(orders).port, "  suspend: true\n")
    assert run("status", path).stderr == f"note: {SUSPENDED}: workers claim no tasks\n"
    found = findings(path)
    assert (found["suspend"]["level"], found["tasks"]["level"]) == ("warning", "ok")
    assert found["suspend"]["message"] == f"{SUSPENDED}: workers claim no tasks"
    assert found["tasks"]["message"] == f"1 task due, the oldest for 1m: {SUSPENDED}"


@pytest.mark.one_server
def test_a_handler_that_no_worker_could_start_with_is_a_failure(
    aof_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code lies beside the document, wherever doctor is run; what it prints is no result of doctor's."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop_of_doctor", raising=False)  # of the same test on another server
    (tmp_path / "shop_of_doctor.py").write_text("print('loaded')\n\ndef cancel(task): ...\n")
    path = document(tmp_path, aof_server.port, handler='{python: {callable: "shop_of_doctor:cancel"}}')
    beside = f"found only beside the document: start delayq worker in {tmp_path}"
    assert findings(path)["handler"]["message"] == f"shop_of_doctor:cancel, {beside}"
    with monkeypatch.context() as here:
        here.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])
        here.delitem(sys.modules, "shop_of_doctor")
        here.chdir(tmp_path)
        assert findings(path)["handler"]["message"] == "shop_of_doctor:cancel"
    for handler, said in (
        ('{python: {callable: "shop_of_doctor:cancel"}}', ""),
        ('{python: {callable: "shop_of_doctor:refund"}}', 'has no attribute "refund"'),
        ('{python: {callable: "no_such_shop:cancel"}}', 'no module "no_such_shop"'),
        ("{exec: {command: [no-such-command]}}", '"no-such-command" is not on the PATH'),
        ("{exec: {command: [cat]}}", ""),
        ("{http: {url: 'http://x'}, kinds: {a: {exec: {command: [no-such-command]}}}}", 'kinds["a"].exec'),
        ("{exec: {command: [cat]}, kinds: {a: {http: {url: 'http://x'}}}}", ""),
    ):
        path = document(tmp_path, aof_server.port, handler=handler)
        found = findings(path, code=int(bool(said)))["handler"]
        assert (found["level"], said in found["message"]) == ("failed" if said else "ok", True), handler


def test_a_missing_file_of_an_http_service_is_a_failure_where_workers_read_it(
    aof_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only Redis is given, the files may be elsewhere; scanners and reapers have those of the check alone."""
    handler = "{http: {url: 'http://x', secretHeaders: {X-Key: {name: shop, key: token}}}}"
    path = document(tmp_path, aof_server.port, handler=handler)

    def found(*args: str, **env: str) -> tuple[int, str, str]:
        result = run("doctor", path, "-o", "json", *args, DELAYQ_SECRETS_DIR=str(tmp_path), **env)
        one = next((each for each in json.loads(result.stdout) if each["check"] == "credentials"), None)
        return (result.exit_code, one["level"], one["message"]) if one else (result.exit_code, "", "")

    code, level, message = found()
    assert (code, level) == (1, "failed")
    missing = f'spec.handler.http.secretHeaders["X-Key"]: cannot read {tmp_path}/shop/token: No such file'
    assert message.startswith(missing)
    assert found("--redis", aof_server.url)[:2] == (0, "warning")
    with monkeypatch.context() as pod:
        pod.setattr("delayq.cli.doctor.handler.CONFIG_FILE", path)
        assert found()[:2] == (1, "failed")
        assert found(DELAYQ_HORIZONS_PORT="18080") == found(DELAYQ_REAPER="1") == (0, "", "")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "token").write_text("x")
    assert found() == (0, "ok", "the mounted files of HTTP services can be read")


API = """\
  api:
    tls: {certSecretRef: {name: tls}, keySecretRef: {name: tls}}
    tokensSecretRef: {name: tokens}
    access: [{token: php, verbs: [schedule]}]
"""


def test_a_token_without_a_hash_and_a_missing_certificate_are_failures_where_the_api_runs(
    aof_server: RedisServer, tmp_path: Path
) -> None:
    """Where only Redis is given, the files may be elsewhere."""
    path = document(tmp_path, aof_server.port, API)

    def found(*args: str) -> list[dict[str, str]]:
        result = run("doctor", path, "-o", "json", *args, DELAYQ_SECRETS_DIR=str(tmp_path))
        return [each for each in json.loads(result.stdout) if each["check"] == "api"]

    token, certificate = found()
    assert (token["level"], certificate["level"]) == ("failed", "failed")
    assert f"the token php is refused: cannot read {tmp_path}/tokens/php" in token["message"]
    assert "the API cannot start: spec.api.tls: expected a certificate" in certificate["message"]
    assert {each["level"] for each in found("--redis", aof_server.url)} == {"warning"}
    for name in ("tokens", "tls"):
        (tmp_path / name).mkdir()
    (tmp_path / "tokens" / "php").write_text(hash_of(new_token()))
    made = trustme.CA().issue_cert("localhost")
    made.private_key_pem.write_to_path(tmp_path / "tls" / "tls.key")
    made.cert_chain_pems[0].write_to_path(tmp_path / "tls" / "tls.crt")
    assert [each["level"] for each in found()] == ["ok"]


def test_a_document_that_is_wrong_is_a_failed_check(tmp_path: Path) -> None:
    result = run("doctor", document(tmp_path, "many"))
    assert result.exit_code == 1
    assert "✗ document" in result.stdout
    assert "expected a whole number from 1 to 65535" in result.stdout


@pytest.fixture
def sharded(redis_server: RedisServer) -> Iterator[Shard]:
    with shard_on(redis_server, "orders", shards=3) as shard:
        yield shard


def test_a_format_a_key_or_a_counter_that_delayq_cannot_use_is_named_with_what_to_do(sharded: Shard) -> None:
    url, stats = sharded.server.url, sharded.keys.stats
    sharded.redis.hset(stats, "format", FORMAT + 1)
    found = found_at(url, "--shards", "3", code=1)
    assert (found["format"]["level"], "scripts" in found) == ("failed", False)
    said = f"queue orders, shard 0: expected format {FORMAT}, got {FORMAT + 1}"
    assert found["format"]["message"] == said
    assert found["format"]["hint"] == "A newer delayq wrote it: update this process to that version"
    sharded.redis.hset(stats, mapping={"format": FORMAT, "claimed": "x", "acked": "7", "retried": ""})
    found = found_at(url, "--shards", "3")
    assert (found["keys"]["level"], found["scripts"]["level"]) == ("warning", "ok")
    assert found["keys"]["message"].startswith(f"{stats} has values that are not numbers in ")
    named = found["keys"]["message"].partition(" in ")[2].partition(":")[0].split(", ")
    assert sorted(named) == ["claimed", "retried"]
    sharded.redis.delete(stats)
    assert "format" not in found_at(url, "--shards", "3")
    for name, kind, next_step in (
        ("delayed", "sorted set", "reapers restore the index entries of its tasks"),
        ("tasks", "hash", "restore a backup"),
        ("wake", "list", "it stores no tasks"),
        ("rate", "string", "it stores no tasks"),
    ):
        sharded.redis.delete(key := getattr(sharded.commands.shards[1], name))
        foreign = sharded.redises[1]
        foreign.geoadd(key, (1, 1, "x")) if kind == "list" else foreign.lpush(key, "x")
        keys = found_at(url, "--shards", "3", code=1)["keys"]
        assert keys["message"].startswith(f"{key} is not a {kind}: another program overwrote it, and ")
        assert next_step in keys["hint"]
        foreign.delete(key)


def test_a_change_of_shards_is_reported_and_all_of_them_are_counted(sharded: Shard, tmp_path: Path) -> None:
    path = document(tmp_path, one_server(sharded).port, "  shards: 4\n")
    for shard in range(3):
        seed(sharded.redis, sharded.commands.keys(shard), State(delayed={f"t{shard}": LATER}))
    for shard_map, note, level, said in (
        (SETTLED, "", "warning", "the document says 4, the queue has 2"),
        (ANNOUNCED, "is about to have 3 shards instead of 2", "ok", "2, about to become 3 shards"),
        (MOVING, "move from 2 to 3 shards", "ok", "tasks move from 2 to 3 shards"),
    ):
        sharded.run(sharded.commands.sync_shard_map(0, shard_map))
        result = on(sharded, "status", "orders")
        assert (note in result.stderr, bool(result.stderr)) == (True, bool(note))
        assert result.stdout.splitlines()[1].split()[:2] == ["orders", str(shard_map.shards_in_use)]
        found = findings(path)["shards"]
        assert (found["level"], found["message"].removesuffix("; tasks run meanwhile")) == (level, said)


def test_counters_do_not_fall_when_shards_are_dropped(sharded: Shard, tmp_path: Path) -> None:
    for shard in range(3):
        seed(sharded.redis, sharded.commands.keys(shard), State(stats={"acked": 10 + shard}))
    sharded.run(sharded.commands.sync_shard_map(0, ShardMap(7, 2, 2, 2, 3)))
    assert answer(sharded, "status", "orders")["stats"]["acked"] == 33
    path = document(tmp_path, one_server(sharded).port, "  shards: 2\n")
    assert "shards" not in findings(path)  # there are as many as the document says
