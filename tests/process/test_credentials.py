"""A worker whose HTTP service wants a credential: the files come late, are rotated, and the service insists on them."""

from __future__ import annotations

import json
import signal
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import trustme

from tests.process.fleet import readiness, status, until, wait_said
from tests.process.local_home import Home
from tests.processes import DELAYQ, Process
from tests.servers import PASSWORD, USER, RedisServer, free_port
from tests.unit.cli.runner import run
from tests.unit.connection.mounted import mount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import NewFleet, Role

SECRET = {"name": "shop", "key": "token", "scheme": "Bearer"}


class Service:
    """An HTTPS service that answers 401 to every token but one."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.answers: list[tuple[str, int]] = []
        """Task and status of each call."""
        self.url = ""

    @contextmanager
    def listening(self, authority: trustme.CA) -> Iterator[None]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                wanted = f"Bearer {service.token}"
                code = 204 if self.headers["Authorization"] == wanted else 401
                service.answers.append((self.headers["Delayq-Task-Id"], code))
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not on stderr."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{server.server_port}/cancel"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()


def test_a_worker_waits_for_its_files_names_them_and_follows_their_rotation(
    new_fleet: NewFleet, tmp_path: Path
) -> None:
    """Until then it claims nothing; after the service's token has changed, the task succeeds once the file has."""
    authority, service, secrets = trustme.CA(), Service("first"), tmp_path / "secrets"
    (secrets / "_configmaps").mkdir(parents=True)
    with service.listening(authority):
        http = {
            "url": service.url,
            "secretHeaders": {"Authorization": SECRET},
            "caConfigMapRef": {"name": "trust"},
        }
        spec = {
            "handler": {"http": http},
            "delivery": {"backoff": {"delaysSeconds": [1]}, "maxAttempts": 100},
        }
        environment = {"DELAYQ_SECRETS_DIR": str(secrets)}
        fleet = new_fleet(spec, environment=environment)
        with fleet.client() as client:
            client.schedule(1, delay_ms=0, task_id="early")
            worker = fleet.start("worker", ready=False)
            assert f"cannot read {secrets}/shop/token" in wait_said(worker, "secret_awaited")["problem"]
            until(lambda: status(worker, "readyz") == 503, "not ready")
            where = {"DELAYQ_REDIS_URL": fleet.server.url, **environment}
            found = json.loads(run("doctor", str(fleet.config), "-o", "json", **where).stdout)
            messages = [each["message"] for each in found if each["check"] == "credentials"]
            assert ["shop/token" in messages[0], "trust/ca.crt" in messages[1]] == [True, True]
            mount(secrets, "shop", token=b"first\n")
            until(lambda: "shop/token" not in readiness(worker), "the token is found")
            assert "key ca.crt of ConfigMap trust" in readiness(worker)
            assert (client.counts().stats.get("claimed", 0), service.answers) == (0, [])
            mount(secrets / "_configmaps", "trust", ca_crt=authority.cert_pem.bytes())
            fleet.wait_ready(worker)
            until(lambda: service.answers == [("early", 204)], "early is delivered")
            assert run("doctor", str(fleet.config), **where).exit_code == 0
            service.token = "second"  # noqa: S105 -- the issuer replaces it before the Secret has it
            client.schedule(1, delay_ms=0, task_id="later")
            until(lambda: ("later", 401) in service.answers, "refused")
            mount(secrets, "shop", token=b"second")
            until(lambda: ("later", 204) in service.answers, "accepted")
            until(lambda: client.counts().waiting + client.counts().in_flight == 0, "acked")
            assert client.counts().dead == 0


LOGIN = {"usernameSecretRef": {"name": "login"}, "passwordSecretRef": {"name": "login"}}
GUARD = {"sqlUnique": {"databaseSecretRef": {"name": "db"}}}
MISSING = 'kind="Secret",name="{}",key="{}"}} 1.0'


def test_processes_wait_for_the_keys_that_they_begin_with_name_them_and_begin_when_they_are_there(
    new_fleet: NewFleet, flavour: str, tmp_path: Path
) -> None:
    """A kubelet mounts what is created late. Until then the kubelet and the operator are answered; nothing restarts."""
    secrets, server = tmp_path / "secrets", RedisServer.start(flavour, dir=tmp_path / "redis")
    secrets.mkdir()
    redis = {"standalone": {"host": "127.0.0.1", "port": server.port}, "auth": LOGIN}
    environment = {"DELAYQ_SECRETS_DIR": str(secrets)}
    fleet = new_fleet({"redis": redis, "guard": GUARD}, environment=environment, server=server)
    roles: tuple[Role, ...] = ("scanner", "worker", "reaper")
    ports, asked = {role: free_port() for role in roles}, free_port()
    own: dict[Role, tuple[str, ...]] = {"scanner": ("--horizons-port", str(asked))}
    processes = {
        role: fleet.start(role, "--port", str(port), *own.get(role, ()), ready=False)
        for role, port in ports.items()
    }
    for role, process in processes.items():
        base = f"http://127.0.0.1:{ports[role]}"
        assert process.wait_http(f"{base}/healthz") == b"ok\n"
        assert answer(f"{base}/readyz")[0] == 503
        needed = ["key username of Secret login", "key password of Secret login"]
        needed += [] if role == "scanner" else ["key url of Secret db"]
        waits_for = answer(f"{base}/readyz")[1]
        assert all(each in waits_for for each in needed)
        assert ("; or set $DELAYQ_DATABASE_URL instead" in waits_for) == (role != "scanner")
        reported = [MISSING.format("login", "username"), MISSING.format("login", "password")]
        reported += [] if role == "scanner" else [MISSING.format("db", "url")]
        lines = [line for line in answer(f"{base}/metrics")[1].splitlines() if line.startswith("delayq_")]
        assert all(line.startswith(f'delayq_missing_references{{queue="{fleet.queue}",') for line in lines)
        assert sorted(line.partition(",")[2] for line in lines) == sorted(reported)
    assert MISSING.format("login", "password") in answer(f"http://127.0.0.1:{asked}/metrics?horizon=1")[1]
    mount(secrets, "login", username=USER.encode(), password=PASSWORD.encode())
    fleet.wait_ready(processes["scanner"])
    assert "not ready" in answer(f"http://127.0.0.1:{ports['worker']}/readyz")[1]
    mount(secrets, "db", url=f"sqlite:///{tmp_path}/db".encode())
    for role in ("worker", "reaper"):
        assert wait_said(processes[role], "started")["port"] == ports[role]


def answer(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=10) as found:  # noqa: S310  our own process
            return int(found.status), str(found.read(), "utf-8")
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_process_that_waits_ends_at_once_when_asked_and_an_eraser_after_its_patience(
    new_fleet: NewFleet, tmp_path: Path
) -> None:
    """Neither has done its work, as the exit code says."""
    redis = {"standalone": {"host": "127.0.0.1", "port": 1}, "auth": LOGIN}
    fleet = new_fleet({"redis": redis}, environment={"DELAYQ_SECRETS_DIR": str(tmp_path)})
    worker = fleet.start("worker", ready=False)
    problem = wait_said(worker, "secret_awaited")["problem"]
    assert problem.startswith(
        f"spec.redis.auth.usernameSecretRef: expected key username of Secret login as the file {tmp_path}"
    )
    worker.send(signal.SIGTERM)
    assert worker.wait() == 3
    assert worker.lines[-1].startswith(problem)
    options = ("--yes", "--patience", "100ms", "--port", "0")
    eraser = Process.quick(
        *(DELAYQ, "erase", str(fleet.config), *options), env={"DELAYQ_SECRETS_DIR": str(tmp_path)}
    )
    assert eraser.wait() == 3
    assert eraser.lines[-1].startswith(problem)


def test_a_run_on_a_laptop_ends_at_once_and_names_the_file(tmp_path: Path) -> None:
    """Nothing mounts it later there."""
    home = Home(tmp_path / "home")
    home.dir.mkdir()
    home.write()
    document = (home.dir / "queue.yaml").read_text()
    handler = (
        '{http: {url: "https://127.0.0.1:1/", secretHeaders: {Authorization: {name: shop, key: token}}}}'
    )
    changed = document.replace('{python: {callable: "shop_handlers:keep"}}', handler)
    assert changed != document
    (home.dir / "queue.yaml").write_text(changed)
    result = run("run", str(home.dir / "queue.yaml"), DELAYQ_SECRETS_DIR=str(tmp_path))
    assert result.exit_code == 3
    assert (
        f'spec.handler.http.secretHeaders["Authorization"]: cannot read {tmp_path}/shop/token'
        in result.stderr
    )
