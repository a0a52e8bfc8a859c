"""The examples of production run as they are, but for where Redis is: on Sentinels with TLS, and on a Cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from delayq import SyncClient
from delayq.client.document import read

from tests.processes import DELAYQ, running
from tests.servers import PASSWORD, PREFERRED, USER
from tests.topologies.certificates import Tls
from tests.topologies.cluster import Cluster
from tests.topologies.sentinels import MASTER, Sentinels

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
PRODUCTION, CLUSTER = ROOT / "examples" / "production", ROOT / "examples" / "cluster"
TASKS = 20


def handles_what_is_scheduled(
    example: Path, folder: Path, patch: pytest.MonkeyPatch, *, redis: dict[str, Any], secrets: dict[str, str]
) -> None:
    """Run a copy of an example with Redis elsewhere: a worker and a scanner."""
    document = yaml.safe_load((example / "queue.yaml").read_text())
    for topology, fields in redis.items():
        document["spec"]["redis"][topology] |= fields
    (folder / "queue.yaml").write_text(yaml.safe_dump(document))
    for path, text in secrets.items():
        (folder / "secrets" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "secrets" / path).write_text(text)
    patch.setenv("DELAYQ_SECRETS_DIR", str(folder / "secrets"))
    options = ("queue.yaml", "--port", "0", "--log-level", "debug")
    with (
        running(DELAYQ, "worker", *options, cwd=folder) as worker,
        running(DELAYQ, "scanner", *options, cwd=folder),
        SyncClient.from_document(folder / "queue.yaml") as client,
    ):
        for number in range(TASKS):
            client.schedule(None, delay_ms=100, task_id=f"order-{number}")
        for number in range(TASKS):
            worker.wait_line(rf"reminding of order-{number}\b")


def login(*names: str) -> dict[str, str]:
    found = {f"{name}/username": USER for name in names}
    return found | {f"{name}/password": PASSWORD for name in names}


def test_the_queue_of_production_runs_on_sentinels_with_tls_and_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        secrets = {path: file.read_text() for path, file in files.items()}
        secrets |= login("redis-login", "sentinel-login")
        redis = {"sentinel": {"masterName": MASTER, "nodes": nodes}}
        handles_what_is_scheduled(PRODUCTION, tmp_path, monkeypatch, redis=redis, secrets=secrets)
    finally:
        sentinels.stop()


def test_the_queue_of_the_cluster_runs_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.start(PREFERRED, dir=tmp_path / "redis")
    try:
        nodes = [{"host": each.host, "port": each.port} for each in cluster.nodes[:3]]
        redis = {"cluster": {"nodes": nodes}}
        handles_what_is_scheduled(CLUSTER, tmp_path, monkeypatch, redis=redis, secrets=login("redis-login"))
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
