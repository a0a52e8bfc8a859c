"""No secret in anything that a run says: logs at their most talkative, metrics, probes, errors, arguments, files.

Every secret is a word that is found nowhere else; the words are looked for in all that processes and commands produced,
with right and wrong passwords, an outage, servers that are not there, and tracebacks.
"""

from __future__ import annotations

import base64
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml
from delayq import SyncClient
from delayq.errors import DelayQError

from tests.databases import PASSWORD as DATABASE_PASSWORD
from tests.databases import Postgres
from tests.process.fleet import HERE, Fleet, until, url_of
from tests.process.local_home import Home, stopped
from tests.processes import delayq
from tests.servers import PASSWORD, PREFERRED, USER, RedisServer
from tests.topologies.certificates import Tls
from tests.topologies.secured import LOGIN, SHOWN, cut, mounted
from tests.unit.cli.runner import run
from tests.unit.connection.mounted import mount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.fleet import NewFleet, Role
    from tests.processes import Process

ROLES: tuple[Role, ...] = ("scanner", "worker", "reaper")
CANARY = "canary-Zq7/p@ss:w%rd"
"""A wrong password, with everything in it that URLs have to quote."""


def forms(secret: str) -> set[str]:
    """The ways in which a secret could be told: as it is, quoted as in URLs or in Python, in base64."""
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return {secret, quote(secret, safe=""), quote(secret), repr(secret)[1:-1], encoded}


def told(secrets: set[str], text: str) -> set[str]:
    return {form for secret in secrets for form in forms(secret) if form in text}


def arguments(process: Process) -> str:
    """What `ps` shows to everybody. The environment is the owner's alone."""
    return Path(f"/proc/{process.pid}/cmdline").read_text()


def command(*args: str, **environment: str) -> str:
    """Everything that a command says."""
    result = run(*args, **environment)
    return f"{result.output} {result.exception!r}"


def test_processes_tell_no_password_and_no_key_whatever_happens(
    tmp_path: Path, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, mounts = Tls(tmp_path / "authority"), tmp_path / "secrets"
    mounts.mkdir()
    mounted(mounts, tls)
    monkeypatch.setenv("DELAYQ_SECRETS_DIR", str(mounts))
    server = RedisServer.start(PREFERRED, dir=tmp_path / "redis", tls=tls)
    standalone = {"host": server.host, "port": server.port}
    spec = {"redis": {"standalone": standalone, "auth": LOGIN, "tls": SHOWN}}
    environment = {"DELAYQ_SECRETS_DIR": str(mounts), "PYTHONASYNCIODEBUG": "1"}
    fleet = Fleet(server, tmp_path, queue_name, spec, environment)
    key = tls.client.key.read_text().splitlines()[1]
    secrets, said = {PASSWORD, CANARY, key}, ""
    try:
        processes = [fleet.start(role, "--log-level", "debug") for role in ROLES]
        with SyncClient.from_document(fleet.config) as client:
            client.schedule({"do": "fail"}, delay_ms=0, task_id="traceback")
            fleet.wait_entry("start", "traceback")
        mount(mounts, "login", password=CANARY.encode())  # wrong from now on
        cut(server)
        for process in processes[:2]:
            process.wait_line(r'"event": "redis_unavailable"|"event": "step_failed"', timeout_s=60)
        with SyncClient.from_document(fleet.config) as client, pytest.raises(DelayQError) as caught:
            client.counts()
        said += "".join(f"{error!s} {error!r}" for error in (caught.value, caught.value.__cause__))
        said += command("status", str(fleet.config), **environment)
        mounted(mounts, tls)
        server.stop()
        said += command("status", str(fleet.config), **environment)
        for process in processes:
            said += arguments(process)
            for path in ("metrics", "readyz"):
                with suppress(OSError), urlopen(url_of(process, path), timeout=10) as answer:  # noqa: S310  our own process
                    said += answer.read().decode()
            process.stop(timeout_s=60)
        until(lambda: not any(process.alive for process in processes), "all have stopped", timeout_s=60)
        said += "".join(line for process in processes for line in process.lines)
    finally:
        fleet.kill_all()
        server.stop()
    assert queue_name in said
    assert "cannot reach Redis" in said
    assert told({CANARY}, f"redis://:{quote(CANARY)}@host")  # it would be found
    assert told(secrets, said) == set()
    kept = [path for path in (fleet.dir / "ledger").rglob("*") if path.is_file()]
    assert told(secrets, "".join(path.read_text() for path in [*kept, fleet.config])) == set()


@pytest.mark.parametrize(
    "url",
    [
        f"redis://{USER}:{{}}@127.0.0.1:1/0",
        f"rediss://{USER}:{{}}@127.0.0.1:1/0",
        "redis://:{}@nowhere.invalid:6379/0",
        "redis+sentinel://:{}@127.0.0.1:1,127.0.0.1:2/main/0",
        "redis+cluster://:{}@127.0.0.1:1",
        "unix://:{}@/nowhere/redis.sock",
        "redis://:{}@127.0.0.1:port/0",
        "redis://:{}@127.0.0.1:1/database",
        "http://:{}@127.0.0.1:1/0",
    ],
)
def test_no_command_repeats_the_password_of_a_url_that_leads_nowhere(url: str) -> None:
    """Whatever is wrong with it, and also where the password was typed without quoting it."""
    quoted, bare = url.format(quote(CANARY, safe="")), url.format("canary-Zq7")
    for said in (
        command("status", "q", DELAYQ_REDIS_URL=quoted),
        command("status", "q", "--redis", bare),
    ):
        assert "SystemExit" in said
        assert "canary-Zq7" not in said


def document(path: Path, queue: str, **spec: Any) -> str:  # noqa: ANN401  any part of a document
    handler = {"handler": {"python": {"callable": "recorder:handle"}}}
    found = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": queue}}
    path.write_text(yaml.safe_dump(found | {"spec": handler | spec}))
    return str(path)


def every_command(path: str, **environment: str) -> str:
    """What those say that connect, for people and for programs."""
    asked = (("doctor", path), ("doctor", path, "-o", "json"), ("status", path))
    return "".join(command(*each, **environment) for each in asked)


@pytest.mark.parametrize("there", ["nobody", "no Sentinel", "a Redis that wants another password"])
def test_a_sentinels_password_is_told_by_nobody(
    tmp_path: Path, flavour: str, queue_name: str, there: str
) -> None:
    mount(tmp_path, "watch", password=CANARY.encode())
    config = {"requirepass": "another"} if there.endswith("password") else {}
    server = RedisServer.start(flavour, dir=tmp_path / "redis", config=config)
    port = 1 if there == "nobody" else server.port
    sentinel = {"masterName": "main", "nodes": [{"host": "127.0.0.1", "port": port}]}
    secret = {"passwordSecretRef": {"name": "watch", "key": "password"}}
    redis = {"sentinel": sentinel | {"auth": secret}, "auth": secret}
    path = document(tmp_path / "queue.yaml", queue_name, redis=redis | {"connection": {"timeoutSeconds": 1}})
    environment = {"DELAYQ_SECRETS_DIR": str(tmp_path), "LEDGER": str(tmp_path), "PYTHONASYNCIODEBUG": "1"}
    try:
        said = every_command(path, **environment)
        if config:  # of a server that is there, most is said
            options = ("--config", path, "--port", "0", "--log-level", "debug")
            scanner = delayq("scanner", *options, env=environment, cwd=HERE)
            scanner.wait_line('"event": "redis_unavailable"|"event": "step_failed"', timeout_s=60)
            said += arguments(scanner)
            scanner.stop(timeout_s=60)
            said += "".join(scanner.lines)
    finally:
        server.stop()
    assert queue_name in said
    assert told({CANARY}, said) == set()


def test_keys_and_tokens_of_an_http_handler_are_told_by_nobody(new_fleet: NewFleet, tmp_path: Path) -> None:
    """Where nobody listens, and where a server fails. The token is the document's own, and of it alone."""
    mount(tmp_path, "signing", key=CANARY.encode())
    said, token = "", "canary-token-9f8e7d"
    for port in (1, None):
        with failing_server() as failing:
            spec: dict[str, Any] = {"url": f"http://127.0.0.1:{port or failing}/take"}
            spec |= {"signingSecretRef": {"name": "signing"}, "headers": {"Authorization": f"Bearer {token}"}}
            environment = {"DELAYQ_SECRETS_DIR": str(tmp_path), "PYTHONASYNCIODEBUG": "1"}
            fleet = new_fleet(
                {"handler": {"http": spec}, "delivery": {"maxAttempts": 1}}, environment=environment
            )
            worker = fleet.start("worker", "--log-level", "debug")
            with fleet.client() as client:
                client.schedule({"n": 1}, delay_ms=0, task_id="letter")
                until(lambda c=client: c.counts().dead, "dead")  # type: ignore[misc]  # a lambda
            where = {"DELAYQ_REDIS_URL": fleet.server.url, **environment}
            said += every_command(str(fleet.config), **where)
            for verb in (("dlq", "get"), ("task", "get")):
                said += command(*verb, fleet.queue, "letter", "-o", "json", **where)
            with urlopen(url_of(worker, "metrics"), timeout=10) as answer:  # noqa: S310  our own process
                said += answer.read().decode()
            said += arguments(worker)
            worker.stop(timeout_s=60)
            said += "".join(worker.lines)
    assert "letter" in said
    assert told({CANARY, token}, said) == set()


@contextmanager
def failing_server() -> Iterator[int]:
    """Answers every call with 500."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(500)

        def log_message(self, *_: object) -> None:
            """Not on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_the_password_of_a_guards_database_is_told_by_nobody(new_fleet: NewFleet, tmp_path: Path) -> None:
    """The right one and a wrong one, of one that is there and one that is not, and of what is no URL at all."""
    postgres = Postgres.start(tmp_path / "postgres")
    right, quoted = postgres.url(), quote(CANARY, safe="")
    wrong = right.replace(f":{DATABASE_PASSWORD}@", f":{quoted}@")
    spec = {"guard": {"sqlUnique": {"databaseSecretRef": {"name": "database"}}}}
    fleet = new_fleet(spec, environment={"DELAYQ_SECRETS_DIR": str(tmp_path), "PYTHONASYNCIODEBUG": "1"})
    mount(tmp_path, "database", url=right.encode())
    where = {"DELAYQ_REDIS_URL": fleet.server.url, **fleet.environment}
    config = str(fleet.config)
    try:
        said = command("guard", "init", config, **where)
        workers = [fleet.start("worker", "--log-level", "debug")]
        with fleet.client() as client:
            client.schedule({"do": "fail"}, delay_ms=0, task_id="traceback")
            fleet.wait_entry("start", "traceback")
        for url in (
            right,
            wrong,
            right.replace(str(postgres.port), "1"),
            wrong.replace("127.0.0.1", "nowhere.invalid"),
            f"postgresql://delayq:{CANARY}@127.0.0.1/test",
            f"mysql://delayq:{quoted}@127.0.0.1:1/test",
            f"postgresql://127.0.0.1:1/test?user=delayq&password={quoted}",
            f"sqlite:////nowhere/x?password={quoted}",
            f"oracle://delayq:{quoted}@127.0.0.1/test",
            CANARY,
        ):
            mount(tmp_path, "database", url=url.encode())
            said += command("doctor", config, **where)
            said += command("guard", "init", config, **where, DELAYQ_DATABASE_URL=url)
        mount(tmp_path, "database", url=wrong.encode())
        said += every_command(config, **where)
        workers.append(fleet.start("worker", "--log-level", "debug", ready=False))
        workers[1].wait_line('"event": "guard_', timeout_s=60)
        postgres.stop()
        for worker in workers:
            said += arguments(worker)
            with suppress(OSError), urlopen(url_of(worker, "metrics"), timeout=10) as answer:  # noqa: S310  our own
                said += answer.read().decode()
            worker.stop(timeout_s=60)
            said += "".join(worker.lines)
    finally:
        postgres.stop()
    assert "127.0.0.1" in said
    assert told({CANARY, DATABASE_PASSWORD}, said) == set()


def test_a_home_keeps_its_password_in_two_files_that_nobody_else_may_read(tmp_path: Path) -> None:
    """And of what the environment has, nothing."""
    home = Home(tmp_path / "home")
    home.dir.mkdir()
    home.write(more="  guard: {sqlUnique: {databaseSecretRef: {name: database}}}\n")
    url = f"postgresql://delayq:{quote(CANARY, safe='')}@127.0.0.1:1/test"
    with stopped(home.ready("--log-level", "debug", env={"DELAYQ_DATABASE_URL": url})) as run:
        password = home.url.partition("://:")[2].partition("@")[0]
        home.note(run)
        said = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in home.seen)
        said += command(
            "doctor", str(home.dir / "queue.yaml"), DELAYQ_REDIS_URL=home.url, DELAYQ_DATABASE_URL=url
        )
        kept = {path: path.read_bytes() for path in home.dir.rglob("*") if path.is_file()}
    said += "".join(run.lines)
    holding = {path.name for path, content in kept.items() if password.encode() in content}
    assert holding == {"redis.url", "redis.conf"}
    assert {path.stat().st_mode & 0o077 for path in kept if path.name in holding and path.exists()} == {0}
    assert told({CANARY, password}, said) == set()
    assert told({CANARY}, "".join(content.decode(errors="replace") for content in kept.values())) == set()
    home.wait_gone()
