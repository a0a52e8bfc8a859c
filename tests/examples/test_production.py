"""The examples of production run as they are, but for where Redis is: on Sentinels with TLS, and on a Cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import SyncClient
from delayq.client.document import read

from tests.processes import DELAYQ, Process
from tests.servers import PASSWORD, PREFERRED, USER
from tests.topologies.certificates import Tls
from tests.topologies.cluster import Cluster
from tests.topologies.sentinels import MASTER, Sentinels

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PRODUCTION, CLUSTER = ROOT / "examples" / "production", ROOT / "examples" / "cluster"
TASKS = 20


class Run:
    """A copy of an example with Redis elsewhere, and its processes."""

    def __init__(
        self, example: Path, directory: Path, *, redis: dict[str, Any], secrets: dict[str, str]
    ) -> None:
        document = yaml.safe_load((example / "queue.yaml").read_text())
        for topology, fields in redis.items():
            document["spec"]["redis"][topology] |= fields
        self.file, self.secrets = directory / "queue.yaml", directory / "secrets"
        self.file.write_text(yaml.safe_dump(document))
        for path, text in secrets.items():
            (self.secrets / path).parent.mkdir(parents=True, exist_ok=True)
            (self.secrets / path).write_text(text)
        self.processes: list[Process] = []

    def start(self, role: str) -> Process:
        env = {**os.environ, "DELAYQ_SECRETS_DIR": str(self.secrets), "PYTHONUNBUFFERED": "1"}
        argv = (DELAYQ, role, "--config", str(self.file), "--port", "0", "--log-level", "debug")
        self.processes.append(Process.start(*argv, cwd=self.file.parent, env=env))
        return self.processes[-1]

    def stop(self) -> None:
        for process in self.processes:
            process.stop(timeout_s=60)

    def handles_what_is_scheduled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DELAYQ_SECRETS_DIR", str(self.secrets))
        worker = self.start("worker")
        self.start("scanner")
        with SyncClient.from_document(self.file) as client:
            for number in range(TASKS):
                client.schedule(None, delay_ms=100, task_id=f"order-{number}")
        for number in range(TASKS):
            worker.wait_line(rf"reminding of order-{number}\b", timeout_s=60)


def login(*names: str) -> dict[str, str]:
    found = {f"{name}/username": USER for name in names}
    return found | {f"{name}/password": PASSWORD for name in names}


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.stop()


def test_the_queue_of_production_runs_on_sentinels_with_tls_and_users(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = yaml.safe_load((PRODUCTION / "queue.yaml").read_text())["spec"]["redis"]["tls"]["serverName"]
    tls = Tls(tmp_path / "tls", names=("localhost", "127.0.0.1", name))
    sentinels = Sentinels.start(PREFERRED, dir=tmp_path / "redis", tls=tls)
    try:
        nodes = [{"host": each.host, "port": each.port} for each in sentinels.sentinels]
        files = {
            "redis-ca/ca.crt": tls.ca,
            "redis-client/tls.crt": tls.client.cert,
            "redis-client/tls.key": tls.client.key,
        }
        secrets = login("redis-login", "sentinel-login") | {
            path: file.read_text() for path, file in files.items()
        }
        redis = {"sentinel": {"masterName": MASTER, "nodes": nodes}}
        runs.append(Run(PRODUCTION, tmp_path, redis=redis, secrets=secrets))
        runs[0].handles_what_is_scheduled(monkeypatch)
        runs[0].stop()
    finally:
        sentinels.stop()


def test_the_queue_of_the_cluster_runs_on_one(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster.start(PREFERRED, dir=tmp_path / "redis")
    try:
        nodes = [{"host": each.host, "port": each.port} for each in cluster.nodes[:3]]
        runs.append(Run(CLUSTER, tmp_path, redis={"cluster": {"nodes": nodes}}, secrets=login("redis-login")))
        runs[0].handles_what_is_scheduled(monkeypatch)
        runs[0].stop()
    finally:
        cluster.stop()


def test_every_secret_that_the_document_names_is_there_with_its_keys() -> None:
    secrets = {
        each["metadata"]["name"]: each
        for each in yaml.safe_load_all((PRODUCTION / "secrets.yaml").read_text())
    }
    redis = read(PRODUCTION / "queue.yaml").spec.redis
    assert redis.sentinel is not None
    assert redis.tls is not None
    assert redis.auth is not None
    assert redis.sentinel.auth is not None
    tls, logins = redis.tls, (redis.auth, redis.sentinel.auth)
    users = [each.username_secret_ref for each in logins]
    passwords = [each.password_secret_ref for each in logins]
    refs = (*users, *passwords, tls.ca_secret_ref, tls.cert_secret_ref, tls.key_secret_ref)
    keys = {(ref.name, ref.key) for ref in refs if ref is not None}
    assert keys == {(name, key) for name, each in secrets.items() for key in each["stringData"]}


def test_the_policy_is_about_the_queues_pods() -> None:
    document = yaml.safe_load((PRODUCTION / "queue.yaml").read_text())
    policy = yaml.safe_load((PRODUCTION / "network.yaml").read_text())
    label = policy["spec"]["podSelector"]["matchLabels"]["delayq.dev/queue"]
    assert label == document["metadata"]["name"]
    ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert {26379, 6379} <= ports
