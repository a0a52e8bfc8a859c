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

from tests.redis.commands import DOCUMENT
from tests.servers import PASSWORD, PREFERRED, USER
from tests.topologies.cluster import Cluster
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

pytestmark = pytest.mark.slow

SHARDS = 6
CLUSTER = """\
redis:
    cluster: {nodes: [{host: 127.0.0.1, port: PORT}]}
    auth: {usernameSecretRef: {name: redis-auth}, passwordSecretRef: {name: redis-auth}}
  shards: 6
"""


class Scene(NamedTuple):
    url: str
    port: int  # of a node that is there
    away: list[int]
    named: str  # how notes name the shards that are away
    server: str
    counted: int  # tasks in shards that are served

    def on(self, *args: str) -> Result:
        result = run(*args, "--redis", self.url, "--shards", str(SHARDS))
        assert result.exit_code == 4, result.output
        return result


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Thirty tasks on three nodes. The one with shard 0 has died, and has no replica."""
    directory = tmp_path_factory.mktemp("cluster")
    cluster = Cluster.start(PREFERRED, dir=directory, replicas=False, node_timeout_ms=120_000)
    try:
        homes = [cluster.serving(Keys("delayq", "orders", shard).slot) for shard in range(SHARDS)]
        with SyncClient(cluster.url, queue="orders", shards=SHARDS) as client:
            ids = [client.schedule({}, task_id=f"t{n}", delay_ms=3_600_000 * (n > 5)).id for n in range(30)]
        away = [shard for shard in range(SHARDS) if homes[shard] is homes[0]]
        assert 0 < len(away) < SHARDS
        homes[0].kill()
        counted = sum(shard_of(each, SHARDS) not in away for each in ids)
        port = next(home for home in homes if home is not homes[0]).port
        url = cluster.url.replace(f":{homes[0].port}", f":{port}")
        named = f"shard {', '.join(map(str, away))} of {SHARDS}"
        yield Scene(url, port, away, named, f"127.0.0.1:{homes[0].port}", counted)
    finally:
        cluster.stop()


def test_counts_are_those_of_the_shards_that_are_served(scene: Scene) -> None:
    result = scene.on("status", "orders")
    name, scheduled, due, *_ = result.stdout.splitlines()[1].split()
    assert (name, int(scheduled) + int(due)) == ("orders", scene.counted)
    assert f"note: {scene.named} not served ({scene.server}: " in result.stderr
    found = json.loads(scene.on("status", "orders", "-o", "json").stdout)
    assert found["scheduled"] + found["due"] == scene.counted
    missing = {(each["shard"], each["server"]) for each in found["not_served"]}
    assert missing == {(shard, scene.server) for shard in scene.away}
    assert "not served" in scene.on("top", "orders", "--once", "--interval", "100ms").stdout


def test_doctor_goes_on_with_the_other_shards_and_says_which_wait(scene: Scene) -> None:
    found = {each["check"]: each for each in json.loads(scene.on("doctor", "orders", "-o", "json").stdout)}
    assert f"✗ connect     {scene.server}: connection refused" in scene.on("doctor", "orders").stdout
    assert found["shards"]["message"].startswith(f"{scene.named} not served ({scene.server}: ")
    served = SHARDS - len(scene.away)
    assert found["scripts"]["message"] == f"load and run on {served} of {SHARDS} shards"
    assert "tasks" in found


def test_a_run_starts_with_the_shards_that_are_served(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on the document's own Redis, whose secrets it reads, and of which no process gets a URL."""
    (tmp_path / "redis-auth").mkdir()
    (tmp_path / "redis-auth" / "username").write_text(USER)
    (tmp_path / "redis-auth" / "password").write_text(PASSWORD)
    monkeypatch.setenv("DELAYQ_SECRETS_DIR", str(tmp_path))
    text = DOCUMENT.replace("redis: {standalone: {host: 127.0.0.1, port: PORT}}\n", CLUSTER)
    document = parse_text(text.replace("PORT", str(scene.port)).encode(), "queue.yaml")
    stores = [External(scene.url, document), External("spec", document)]
    assert [store.url for store in stores] == [scene.url, None]
    for store in stores:
        said = asyncio.run(store.open())
        assert f"; {scene.named} waits: cannot reach Redis at {scene.server}" in said
