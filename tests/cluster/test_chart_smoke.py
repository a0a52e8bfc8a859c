"""What `helm test` runs, where it cannot pass: it says why not. tests/node/test_pods.py sees it pass, as a pod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.cluster.harness.resources import delayqueues
from tests.offline.chart import CHART

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane

SCRIPT = CHART / "files" / "smoke.py"
QUEUE = "delayq-test"
NO_OPERATOR = "No operator has looked at it."
REDIS = '{"standalone": {"host": "redis-invalid"}}'


def run(
    cluster: ControlPlane, namespace: str, folder: Path, *args: str, redis: str = REDIS, seconds: int = 2
) -> str:
    """What the script says, which fails; as administrator."""
    (folder / "redis.json").write_text(redis)
    account = {
        "token": cluster.admin_token,
        "namespace": namespace,
        "ca.crt": cluster.authority.read_text(),
    }
    for name, content in account.items():
        (folder / name).write_text(content)
    url = urlsplit(cluster.url)
    server = {"KUBERNETES_SERVICE_HOST": str(url.hostname), "KUBERNETES_SERVICE_PORT": str(url.port)}
    done = subprocess.run(
        [
            *(sys.executable, SCRIPT, f"--name={QUEUE}", f"--timeout-seconds={seconds}"),
            *(f"--redis={folder}/redis.json", f"--account={folder}", *args),
        ],
        env=os.environ | server,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 1
    return done.stdout + done.stderr


@pytest.mark.usefixtures("crd")
def test_it_fails_in_time_and_says_where_to_look(
    cluster: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Without an operator. It fails at once without Redis, with a bad one, and in a namespace that is not served."""
    smoke = partial(run, cluster, namespace, tmp_path)
    said = smoke()
    assert NO_OPERATOR in said
    assert f"kubectl -n {namespace} describe delayqueue {QUEUE}" in said
    kept = f"{delayqueues(namespace)}/{QUEUE}"
    before = cluster.rest.get(kept)["metadata"]["uid"]
    assert NO_OPERATOR in smoke()
    assert cluster.rest.get(kept)["metadata"]["uid"] != before  # the next run replaces it
    wrong = json.dumps({"standalone": {"host": "two words"}})
    assert "spec.redis.standalone.host" in smoke(redis=wrong, seconds=60)
    assert "--set test.redis.standalone.host=" in smoke(redis="{}", seconds=60)
    reported = f"the test makes its DelayQueue in {namespace}"
    assert reported in smoke("--served=elsewhere", seconds=60)
