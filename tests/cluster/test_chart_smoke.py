"""What `helm test` runs: it sees a task handled, or says why not.

The pods are processes of this host (harness/node.py). The test's own pod is not among them: a ProcessNode has no token
for it, so its script is started here, with the account and the arguments that the pod would have.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from tests.cluster.harness.resources import delayqueues, found, make_namespace
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator, install_rights
from tests.offline.chart import CHART, find, rendered
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.cluster import Cluster
    from tests.offline.chart import Values

pytestmark = pytest.mark.usefixtures("crd")

SCRIPT = CHART / "files" / "smoke.py"
PASSWORD = "pass/word"  # noqa: S105  of a Redis that lives as long as the test
QUEUE = "delayq-test"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer.start(PREFERRED, dir=tmp_path / "redis", appendonly=True)
    with server.client() as client:
        client.config_set("requirepass", PASSWORD)
    yield server
    server.stop()


@dataclass
class Release:
    """The files that the test's pod of a release would have."""

    cluster: Cluster
    namespace: str
    dir: Path
    values: Values

    def prepare_test(self) -> None:
        """Make the hook's account and rights, as Helm does, and its files."""
        self.dir.mkdir()
        hooks = rendered(self.values, f"--namespace={self.namespace}", "--show-only=templates/test.yaml")
        rights = [each for each in hooks if each["kind"] in {"ServiceAccount", "Role", "RoleBinding"}]
        text = "\n---\n".join(json.dumps(each) for each in rights)
        self.cluster.kubectl("apply", "-f", "-", input=text)
        config = find(hooks, "ConfigMap", QUEUE)["data"]
        assert config["smoke.py"].strip() == SCRIPT.read_text().strip()
        (self.dir / "redis.json").write_text(config["redis.json"])
        self._write_account()

    def _write_account(self) -> None:
        token = self.cluster.kubectl("create", "token", QUEUE, f"--namespace={self.namespace}").stdout
        root = self.cluster.rest.get(f"/api/v1/namespaces/{self.namespace}/configmaps/kube-root-ca.crt")
        account = {"token": token, "namespace": self.namespace, "ca.crt": root["data"]["ca.crt"]}
        (self.dir / "account").mkdir()
        for name, content in account.items():
            (self.dir / "account" / name).write_text(content)
        secret = self.dir / "secrets" / "redis"
        secret.mkdir(parents=True)
        (secret / "password").write_text(PASSWORD)

    def test(self, *args: str, timeout_s: int = 90) -> subprocess.CompletedProcess[str]:
        """Run the script with the pod's arguments, and more."""
        pod = find(rendered(self.values, f"--namespace={self.namespace}"), "Pod", QUEUE)["spec"]
        url = urlsplit(self.cluster.url)
        return subprocess.run(
            [
                *(sys.executable, SCRIPT, *pod["containers"][0]["args"]),
                *(f"--redis={self.dir}/redis.json", f"--account={self.dir}/account"),
                *(f"--timeout-seconds={timeout_s}", *args),
            ],
            env=os.environ
            | {
                "KUBERNETES_SERVICE_HOST": str(url.hostname),
                "KUBERNETES_SERVICE_PORT": str(url.port),
                "DELAYQ_SECRETS_DIR": str(self.dir / "secrets"),
            },
            capture_output=True,
            text=True,
            timeout=timeout_s + 30,
            check=False,
        )


def valued(redis: RedisServer, *served: str) -> Values:
    where: dict[str, Any] = {"standalone": {"host": "127.0.0.1", "port": redis.port}}
    return {
        "watchNamespaces": list(served),
        "crds": {"install": False},
        "rbac": {"aggregate": False},
        "policy": {"admission": False},
        "test": {"redis": {**where, "auth": {"passwordSecretRef": {"name": "redis"}}}},
    }


@pytest.fixture
def release(cluster: Cluster, namespace: str, redis: RedisServer, tmp_path: Path) -> Release:
    secret = {"metadata": {"name": "redis"}, "stringData": {"password": PASSWORD}}
    cluster.rest.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    release = Release(cluster, namespace, tmp_path / "release", valued(redis, namespace))
    release.prepare_test()
    return release


@pytest.mark.usefixtures("process_node")
def test_the_queue_is_in_another_namespace_than_the_operator_with_copies_of_its_secrets(
    cluster: Cluster, namespace: str, redis: RedisServer, tmp_path: Path
) -> None:
    """The operator's own namespace takes no queues; the copies are gone when the test has passed."""
    home = f"{namespace}-home"
    make_namespace(cluster, home)
    values = {**valued(redis, home, namespace), "watchNamespaces": [home, namespace]}
    release = Release(cluster, home, tmp_path / "release", values)
    release.prepare_test()
    rights = install_rights(cluster, home, also=(namespace,))
    args = (f"--namespace={namespace}", f"--own-namespace={home}")
    operator = Operator.fork(rights, home, *args).wait_ready()
    done = release.test()
    operator.process.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"created DelayQueue {namespace}/{QUEUE}"
    assert lines[-2:] == ["deleted it; nothing of it is left", "passed"]
    assert not found(cluster, f"{delayqueues(namespace)}/{QUEUE}")
    with Redis(port=redis.port, password=PASSWORD) as client:
        # What says for a week that the queue was erased is no key of a queue.
        assert [key for key in client.keys("*") if client.ttl(key) == -1] == []
    path = f"/api/v1/namespaces/{namespace}/secrets"
    eventually(lambda: not cluster.rest.items(path), what="the copies are gone")
    cluster.kubectl("delete", "namespace", home, "--wait=false")


def test_without_an_operator_it_fails_in_time_and_says_where_to_look(release: Release) -> None:
    done = release.test(timeout_s=2)
    assert done.returncode == 1
    assert "No operator has looked at it." in done.stdout
    assert f"kubectl -n {release.namespace} describe delayqueue {QUEUE}" in done.stdout
    kept = f"{delayqueues(release.namespace)}/{QUEUE}"
    before = release.cluster.rest.get(kept)["metadata"]["uid"]
    release.test(timeout_s=2)
    assert release.cluster.rest.get(kept)["metadata"]["uid"] != before  # the next run replaces it
    what_cannot_work_is_told_at_once(release)


def what_cannot_work_is_told_at_once(release: Release) -> None:
    """A document that the operator refuses, a namespace that it does not serve, no Redis: nobody waits for these."""
    redis = release.dir / "redis.json"
    served = redis.read_text()
    for text, words in (
        ('{"standalone": {"host": "two words"}}', "spec.redis.standalone.host"),
        ("{}", "--set test.redis.standalone.host="),
    ):
        redis.write_text(text)
        done = release.test(timeout_s=60)
        assert (done.returncode, words in done.stdout + done.stderr) == (1, True)
    redis.write_text(served)
    release.values["watchNamespaces"] = ["elsewhere"]
    release.values["test"]["namespace"] = release.namespace
    done = release.test(timeout_s=60)
    assert done.returncode == 1
    assert f"the test makes its DelayQueue in {release.namespace}" in done.stdout
