"""delayq doctor on Sentinels and on a Cluster: who answers, who is the master, and what each server lacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract.outages import remedy
from delayq.protocol.commands import Commands
from delayq.protocol.keys import SLOTS

from tests.servers import PREFERRED, USER
from tests.topologies.cluster import Cluster
from tests.topologies.kinds import stopping
from tests.topologies.sentinels import Sentinels
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

SHARDS = 12


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with stopping(Cluster.start(PREFERRED, dir=directory, replicas=False)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    directory = tmp_path_factory.mktemp("sentinels")
    with stopping(Sentinels.start(PREFERRED, dir=directory, down_after_ms=60_000)) as sentinels:
        yield sentinels


def findings(url: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """What was found, the last of each check."""
    result = run("doctor", "orders", "--redis", url, "--shards", str(SHARDS), "-o", "json")
    assert (result.exit_code, "pass-for-tests" in result.output) == (code, False), result.output
    return {each["check"]: each for each in json.loads(result.stdout)}


def test_sentinels_and_their_master_are_checked(sentinels: Sentinels) -> None:
    found = findings(sentinels.url)
    master = f"127.0.0.1:{sentinels.primary().port}"
    assert found["sentinels"]["message"] == f"3 of 3 answer: mymaster is {master}"
    assert found["connect"]["message"].startswith(f"{master} is 127.0.0.1")
    assert found["role"]["message"] == "master, 2 replicas"
    assert found["scripts"]["message"] == f"load and run on {SHARDS} of {SHARDS} shards"
    assert found["redis"]["message"].startswith("sentinel mymaster at 127.0.0.1:")

    found = findings(sentinels.url.replace("/mymaster/", "/other/"), code=4)
    assert "has no master other" in found["sentinels"]["message"]
    assert "masterName" in found["sentinels"]["hint"]
    assert "scripts" not in found
    away = sentinels.sentinels[2]
    away.kill()
    try:
        reported = findings(sentinels.url)["sentinels"]
    finally:
        away.launch()
        sentinels.wait_well()
    assert (reported["level"], "2 of 3 answer" in reported["message"]) == ("warning", True)
    assert f"127.0.0.1:{away.port}: connection refused" in reported["message"]


def test_every_server_of_a_cluster_is_checked_and_said_of_together(cluster: Cluster) -> None:
    found = findings(cluster.url)
    assert found["cluster"]["message"] == "3 masters, 0 replicas; 12 shards on 3 of them"
    assert found["login"]["message"] == f"all 3 servers: as {USER}, with a password"
    assert found["role"]["message"] == "all 3 servers: master, 0 replicas"
    assert found["scripts"]["level"] == "ok"
    assert found["scanner"]["message"].endswith("of 12")

    with cluster.nodes[1].client() as redis:
        redis.execute_command("ACL", "SETUSER", USER, "-zadd", "-cluster|slots")
        try:
            found = findings(cluster.url, code=1)
        finally:
            redis.execute_command("ACL", "SETUSER", USER, "+zadd", "+cluster|slots")
    assert found["scripts"]["message"] == "the user may not use cluster|slots, zadd"


def test_slots_that_no_server_has_are_reported_with_their_shards_and_a_remedy(tmp_path: Path) -> None:
    whole = {"cluster-require-full-coverage": "yes"}  # the default of Redis
    used = [keys.slot for keys in Commands("orders", shards=SHARDS).shards]
    with stopping(Cluster.start(PREFERRED, dir=tmp_path, replicas=False, config=whole)) as cluster:
        cluster.lose(next(slot for slot in range(SLOTS) if slot not in used))
        found = findings(cluster.url, code=1)
        assert found["cluster"]["message"].startswith("cluster_state:fail; 3 masters")
        assert "cluster-require-full-coverage no" in found["cluster"]["hint"]
        assert "CLUSTERDOWN" in found["scripts"]["message"]
        assert found["scripts"]["hint"] == remedy("cluster_down").cure
        for node in cluster.nodes:
            with node.client() as redis:
                redis.config_set("cluster-require-full-coverage", "no")
        cluster.lose(used[0])
        found = findings(cluster.url, code=4)
        assert "no node serves the slots of shards 0" in found["cluster"]["message"]


def test_a_server_of_another_mode_names_the_field_for_it(cluster: Cluster, sentinels: Sentinels) -> None:
    found = findings(f"redis+cluster://127.0.0.1:{sentinels.primary().port}", code=4)
    assert "cluster support disabled" in found["cluster"]["message"]
    assert "spec.redis.standalone" in found["cluster"]["hint"]
    found = findings(cluster.nodes[0].url, code=4)
    assert "spec.redis.cluster" in found["mode"]["hint"]
    assert "scripts" not in found
    found = findings(f"redis://127.0.0.1:{sentinels.sentinels[0].port}", code=4)
    assert "spec.redis.sentinel" in [*found.values()][-1]["hint"]
