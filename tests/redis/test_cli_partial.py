"""What commands say while a node of a Cluster is away: what the others hold, and which shards are missing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest
from delayq import SyncClient
from delayq.client.document import parse_text
from delayq.local.store import External
from delayq.protocol.keys import Keys, shard_of

from tests.servers import PREFERRED
from tests.topologies.cluster import Cluster
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

pytestmark = pytest.mark.slow

SHARDS = 6


class Scene(NamedTuple):
    url: str
    away: list[int]
    server: str
    counted: int  # tasks in shards that are served

    def on(self, *args: str) -> Result:
        return run(*args, "--redis", self.url, "--shards", str(SHARDS))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Thirty tasks on three nodes, of which the one with shard 0 has died; nobody stands in for it."""
    cluster = Cluster.start(
        PREFERRED, dir=tmp_path_factory.mktemp("cluster"), replicas=False, node_timeout_ms=120_000
    )
    try:
        homes = [cluster.serving(Keys("delayq", "orders", shard).slot) for shard in range(SHARDS)]
        with SyncClient(cluster.url, queue="orders", shards=SHARDS) as client:
            ids = [client.schedule({}, task_id=f"t{n}", delay_ms=3_600_000 * (n > 5)).id for n in range(30)]
        away = [shard for shard in range(SHARDS) if homes[shard] is homes[0]]
        assert 0 < len(away) < SHARDS
        homes[0].kill()
        counted = sum(shard_of(each, SHARDS) not in away for each in ids)
        alive = next(home for home in homes if home is not homes[0])
        url = cluster.url.replace(f":{homes[0].port}", f":{alive.port}")
        yield Scene(url, away, f"127.0.0.1:{homes[0].port}", counted)
    finally:
        cluster.stop()


def test_counts_are_those_of_the_shards_that_are_served(scene: Scene) -> None:
    result = scene.on("status", "orders")
    named = ", ".join(map(str, scene.away))
    assert result.exit_code == 4, result.output
    name, scheduled, due, *_ = result.stdout.splitlines()[1].split()
    assert (name, int(scheduled) + int(due)) == ("orders", scene.counted)
    assert f"note: shard {named} of {SHARDS} not served ({scene.server}: " in result.stderr
    told = scene.on("status", "orders", "-o", "json")
    found = json.loads(told.stdout)
    assert (told.exit_code, found["scheduled"] + found["due"]) == (4, scene.counted)
    assert {(each["shard"], each["server"]) for each in found["not_served"]} == {
        (shard, scene.server) for shard in scene.away
    }
    top = scene.on("top", "orders", "--once", "--interval", "100ms")
    assert (top.exit_code, "not served" in top.stdout) == (4, True)


def test_doctor_goes_on_with_the_other_shards_and_says_which_wait(scene: Scene) -> None:
    result = scene.on("doctor", "orders", "-o", "json")
    assert result.exit_code == 4, result.output
    found = {each["check"]: each for each in json.loads(result.stdout)}
    named = ", ".join(map(str, scene.away))
    assert f"✗ connect     {scene.server}: connection refused" in scene.on("doctor", "orders").stdout
    assert found["shards"]["message"].startswith(f"shard {named} of {SHARDS} not served ({scene.server}: ")
    served = SHARDS - len(scene.away)
    assert found["scripts"]["message"] == f"load and run on {served} of {SHARDS} shards"
    assert "tasks" in found


def test_a_run_starts_with_the_shards_that_are_served(scene: Scene) -> None:
    document = parse_text(
        b"apiVersion: delayq.dev/v1alpha1\nkind: DelayQueue\nmetadata: {name: orders}\n"
        b"spec: {redis: {standalone: {host: not-used}}, shards: 6, handler: {python: {callable: 'json:dumps'}}}\n",
        "queue.yaml",
    )
    said = asyncio.run(External(scene.url, document).open())
    named = ", ".join(map(str, scene.away))
    assert f"; shard {named} of {SHARDS} waits: cannot reach Redis at {scene.server}" in said


def test_a_run_on_the_documents_own_redis_reads_its_secrets_and_tells_no_process_a_url(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login, _, nodes = scene.url.removeprefix("redis+cluster://").partition("@")
    for key, word in zip(("username", "password"), login.split(":"), strict=True):
        (tmp_path / "redis-auth").mkdir(exist_ok=True)
        (tmp_path / "redis-auth" / key).write_text(word)
    monkeypatch.setenv("DELAYQ_SECRETS_DIR", str(tmp_path))
    listed = ", ".join(
        f"{{host: {host}, port: {port}}}"
        for host, port in (node.split(":") for node in set(nodes.split(",")))
    )
    login = "auth: {usernameSecretRef: {name: redis-auth}, passwordSecretRef: {name: redis-auth}}"
    redis = f"{{cluster: {{nodes: [{listed}]}}, {login}}}"
    text = (
        "apiVersion: delayq.dev/v1alpha1\nkind: DelayQueue\nmetadata: {name: orders}\n"
        f"spec: {{redis: {redis}, shards: 6, handler: {{python: {{callable: 'json:dumps'}}}}}}\n"
    )
    store = External("spec", parse_text(text.encode(), "queue.yaml"))
    assert store.url is None
    assert " waits: cannot reach Redis at " in asyncio.run(store.open())
