"""No secret in anything that a run says: logs at their most talkative, metrics, probes, errors, arguments, files.

Every secret is a word that is found nowhere else; the words are looked for in all that processes and commands produced,
with right and wrong passwords, a rotation, an outage, servers that are not there, and tracebacks.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import trustme
from delayq import SyncClient
from delayq.errors import DelayQError

from tests.databases import PASSWORD as DATABASE_PASSWORD
from tests.databases import Postgres
from tests.process.fleet import Fleet, said, until, url_of
from tests.process.local_home import Home, stopped
from tests.process.receiver import receiving
from tests.servers import PASSWORD, PREFERRED, USER, RedisServer
from tests.topologies.certificates import Tls
from tests.topologies.secured import LOGIN, SHOWN, cut, mounted
from tests.unit.cli.runner import run
from tests.unit.connection.mounted import mount

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet
    from tests.processes import Process

CANARY = "canary-Zq7/p@ss:w%rd"
"""A wrong password, with everything in it that URLs have to quote."""
QUOTED = quote(CANARY, safe="")
OUTAGE = r'"event": "(redis_unavailable|step_failed)"'


def reported(secrets: set[str], text: str) -> set[str]:
    """Those of the secrets that are in the text: as they are, quoted as in URLs or in Python, in base64."""
    forms = {
        form
        for secret in secrets
        for form in (
            secret,
            quote(secret, safe=""),
            quote(secret),
            repr(secret)[1:-1],
            base64.b64encode(secret.encode()).decode().rstrip("="),
        )
    }
    return {form for form in forms if form in text}


def command(*args: str, **environment: str) -> str:
    """Everything that a command says."""
    result = run(*args, **environment)
    return f"{result.output} {result.exception!r}"


def every_command(fleet: Fleet) -> str:
    """What those say that connect, for people and for programs."""
    where = {"DELAYQ_REDIS_URL": fleet.server.url} if "redis" not in fleet.spec else {}
    path = str(fleet.config)
    asked = (("doctor", path), ("doctor", path, "-o", "json"), ("status", path))
    return "".join(command(*each, **where, **fleet.environment) for each in asked)


def everything(*processes: Process) -> str:
    """What processes show to all users and write until they end. The environment is the owner's alone."""
    found = ""
    for process in processes:
        found += Path(f"/proc/{process.pid}/cmdline").read_text()
        for path in ("metrics", "readyz"):
            with suppress(OSError), urlopen(url_of(process, path), timeout=10) as answer:  # noqa: S310  our own process
                found += answer.read().decode()
        process.stop(timeout_s=60)
        found += process.output
    return found


def test_processes_take_up_new_secrets_and_never_show_one(
    tmp_path: Path, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong password is mounted; then a new one, and certificates of another authority; then Redis goes away."""
    tls, mounts, new = Tls(tmp_path / "authority"), tmp_path / "secrets", "s3cret-of-tomorrow"
    mounts.mkdir()
    mounted(mounts, tls)
    monkeypatch.setenv("DELAYQ_SECRETS_DIR", str(mounts))
    server = RedisServer.start(PREFERRED, dir=tmp_path / "redis", tls=tls)
    standalone = {"host": server.host, "port": server.port}
    spec = {"redis": {"standalone": standalone, "auth": LOGIN, "tls": SHOWN}}
    environment = {"DELAYQ_SECRETS_DIR": str(mounts), "PYTHONASYNCIODEBUG": "1"}
    fleet, output = Fleet(server, tmp_path, queue_name, spec, environment), ""
    secrets = {PASSWORD, CANARY, new, tls.client.key.read_text().splitlines()[1]}
    try:
        debug = ("--log-level", "debug")
        processes = [
            fleet.start("scanner", *debug),
            fleet.start("worker", *debug),
            fleet.start("reaper", *debug),
        ]
        with SyncClient.from_document(fleet.config) as client, server.client() as redis:
            client.schedule({"do": "fail"}, delay_ms=0, task_id="traceback")
            fleet.wait_entry("start", "traceback")
            mount(mounts, "login", password=CANARY.encode())
            cut(server)
            for process in processes[:2]:
                process.wait_line(OUTAGE)
            with pytest.raises(DelayQError) as caught:
                client.counts()
            output += "".join(f"{error!s} {error!r}" for error in (caught.value, caught.value.__cause__))
            output += every_command(fleet)
            tls.renew(trustme.CA())
            redis.config_set("tls-ca-cert-file", str(tls.ca), "tls-cert-file", str(tls.server.cert))
            redis.execute_command("ACL", "SETUSER", USER, "resetpass", f">{new}")
            cut(server)
            mounted(mounts, tls)
            mount(mounts, "login", password=new.encode())
            secrets.add(tls.client.key.read_text().splitlines()[1])
            client.schedule(None, delay_ms=0, task_id="after", if_exists="keep")
            fleet.wait_entry("start", "after")
        assert [len(said(process, "started")) for process in processes] == [1, 1, 1], "without a restart"
        server.stop()
        output += every_command(fleet) + everything(*processes)
    finally:
        fleet.kill_all()
        server.stop()
    assert queue_name in output
    assert "cannot reach Redis" in output
    assert reported({CANARY}, f"redis://:{quote(CANARY)}@host")  # it would be found
    assert reported(secrets, output) == set()
    kept = [path for path in (fleet.dir / "ledger").rglob("*") if path.is_file()]
    assert reported(secrets, "".join(path.read_text() for path in [*kept, fleet.config])) == set()


def test_no_process_shows_a_sentinels_password(new_fleet: NewFleet, tmp_path: Path, flavour: str) -> None:
    """Where a server has another password, of which most is said, and where nothing listens."""
    mount(tmp_path, "watch", password=CANARY.encode())
    server = RedisServer.start(flavour, dir=tmp_path / "redis", config={"requirepass": "another"})
    secret = {"passwordSecretRef": {"name": "watch", "key": "password"}}
    sentinel = {"masterName": "main", "nodes": [{"host": "127.0.0.1", "port": server.port}], "auth": secret}
    redis = {"sentinel": sentinel, "auth": secret, "timeoutSeconds": 1}
    environment = {"DELAYQ_SECRETS_DIR": str(tmp_path), "PYTHONASYNCIODEBUG": "1"}
    fleet = new_fleet({"redis": redis}, server=server, environment=environment, forked=False)
    try:
        output = every_command(fleet)
        scanner = fleet.start("scanner", "--log-level", "debug", ready=False)
        scanner.wait_line(OUTAGE)
        output += everything(scanner)
    finally:
        server.stop()
    output += every_command(fleet)
    assert fleet.queue in output
    assert reported({CANARY}, output) == set()


def test_no_process_shows_keys_and_tokens_of_an_http_handler(new_fleet: NewFleet, tmp_path: Path) -> None:
    """On a port without a server, and on a server that fails. One token is the document's own, and of it alone."""
    mount(tmp_path, "signing", key=CANARY.encode(), token=b"canary-mounted-3b1c5d")
    environment = {"DELAYQ_SECRETS_DIR": str(tmp_path), "PYTHONASYNCIODEBUG": "1"}
    output, token = "", "canary-token-9f8e7d"
    http = {
        "signingSecretRef": {"name": "signing"},
        "headers": {"Authorization": f"Bearer {token}"},
        "secretHeaders": {"X-Token": {"name": "signing", "key": "token"}},
    }
    with receiving(500) as (failing, seen):
        handler = {"http": http | {"url": "http://127.0.0.1:1/take"}}
        kinds = {"failing": {"http": http | {"url": failing}}}
        spec = {"handler": handler | {"kinds": kinds}, "delivery": {"maxAttempts": 1}}
        fleet = new_fleet(spec, environment=environment, forked=False)
        worker = fleet.start("worker", "--log-level", "debug")
        with fleet.client() as client:
            client.schedule({"n": 1}, delay_ms=0, task_id="letter")
            client.schedule({"n": 1}, delay_ms=0, task_id="letter-2", kind="failing", version=1)
            until(lambda: client.counts().dead == 2, "dead")
        assert ("X-Token", "canary-mounted-3b1c5d") in seen[0][0]
        mount(tmp_path, "signing", token=b"canary-mounted-3b1c5d\n\n")  # which is no value of a header
        where = {"DELAYQ_REDIS_URL": fleet.server.url, **environment}
        for verb in (("dlq", "get"), ("task", "get")):
            for letter in ("letter", "failing:letter-2"):
                output += command(*verb, fleet.queue, letter, "-o", "json", **where)
        output += every_command(fleet) + everything(worker)
    assert "letter" in output
    assert reported({CANARY, token, "canary-mounted-3b1c5d"}, output) == set()


def test_no_process_shows_the_password_of_a_guards_database(new_fleet: NewFleet, tmp_path: Path) -> None:
    """The right one and a wrong one, of a server and of none, and text that is no URL at all."""
    postgres = Postgres.start(tmp_path / "postgres")
    right = postgres.url()
    wrong = right.replace(f":{DATABASE_PASSWORD}@", f":{QUOTED}@")
    spec = {"guard": {"sqlUnique": {"databaseSecretRef": {"name": "database"}}}}
    fleet = new_fleet(spec, environment={"DELAYQ_SECRETS_DIR": str(tmp_path), "PYTHONASYNCIODEBUG": "1"})
    mount(tmp_path, "database", url=right.encode())
    where = {"DELAYQ_REDIS_URL": fleet.server.url, **fleet.environment}
    config = str(fleet.config)
    try:
        output = command("guard", "init", config, **where)
        workers = [fleet.start("worker", "--log-level", "debug")]
        with fleet.client() as client:
            client.schedule({"do": "fail"}, delay_ms=0, task_id="traceback")
            fleet.wait_entry("start", "traceback")
        for url in (
            right.replace(str(postgres.port), "1"),
            wrong.replace("127.0.0.1", "nowhere.invalid"),
            f"postgresql://delayq:{CANARY}@127.0.0.1/test",
            f"mysql://delayq:{QUOTED}@127.0.0.1:1/test",
            f"postgresql://127.0.0.1:1/test?user=delayq&password={QUOTED}",
            f"sqlite:////nowhere/x?password={QUOTED}",
            f"oracle://delayq:{QUOTED}@127.0.0.1/test",
            CANARY,
            wrong,
        ):
            mount(tmp_path, "database", url=url.encode())
            output += command("doctor", config, **where)
            output += command("guard", "init", config, **where, DELAYQ_DATABASE_URL=url)
        workers.append(fleet.start("worker", "--log-level", "debug", ready=False))
        workers[1].wait_line('"event": "guard_')
        postgres.stop()
        output += everything(*workers)
    finally:
        postgres.stop()
    assert "127.0.0.1" in output
    assert reported({CANARY, DATABASE_PASSWORD}, output) == set()


def test_a_home_keeps_its_password_in_two_files_that_only_the_owner_may_read(tmp_path: Path) -> None:
    """And nothing of the environment."""
    home = Home(tmp_path / "home")
    home.dir.mkdir()
    home.write(more="  guard: {sqlUnique: {databaseSecretRef: {name: database}}}\n")
    url = f"postgresql://delayq:{QUOTED}@127.0.0.1:1/test"
    with stopped(home.ready("--log-level", "debug", env={"DELAYQ_DATABASE_URL": url})) as run:
        password = home.url.partition("://:")[2].partition("@")[0]
        home.note(run)
        output = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in home.seen)
        where = {"DELAYQ_REDIS_URL": home.url, "DELAYQ_DATABASE_URL": url}
        output += command("doctor", str(home.dir / "queue.yaml"), **where)
        kept = {path: path.read_bytes() for path in home.dir.rglob("*") if path.is_file()}
        modes = {path.name: path.stat().st_mode & 0o077 for path in kept}
    output += run.output
    holding = {path.name for path, content in kept.items() if password.encode() in content}
    assert holding == {"redis.url", "redis.conf"}
    assert {modes[name] for name in holding} == {0}
    assert reported({CANARY, password}, output) == set()
    assert reported({CANARY}, "".join(content.decode(errors="replace") for content in kept.values())) == set()
    home.wait_gone()
