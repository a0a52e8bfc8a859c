"""The health check for Argo CD in docs/how-to/gitops.md, run by the Lua of Redis on what the operator writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from tests.servers import RedisServer

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "gitops.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[CONFIG] = [found for found in map(yaml.safe_load, BLOCKS) if found["kind"] == "ConfigMap"]
[CHECK] = CONFIG["data"].values()
SCRIPT = f"local obj = cjson.decode(ARGV[1])\nlocal function check()\n{CHECK}\nend\nreturn check().status"


def queue(conditions: dict[str, str], *, observed: int = 2) -> dict[str, Any]:
    """A DelayQueue with the reasons of these conditions, written `status reason`."""
    listed = [
        {"type": kind, "status": said.split()[0], "reason": said.split()[1], "message": "…"}
        for kind, said in conditions.items()
    ]
    status = {"observedGeneration": observed, "conditions": listed}
    return {"metadata": {"generation": 2}, "status": status}


DONE = {
    "Ready": "True AsExpected",
    "Progressing": "True NewReplicaSetAvailable",
    "Degraded": "False AsExpected",
}


FOUND = [
    ("Healthy", queue(DONE)),
    ("Progressing", {"metadata": {"generation": 1}}),
    ("Progressing", queue(DONE, observed=1)),
    ("Progressing", queue(DONE | {"Progressing": "True ReplicaSetUpdated"})),
    ("Progressing", queue(DONE | {"Ready": "False WorkersNotReady"})),
    ("Suspended", queue(DONE | {"Ready": "True Suspended"})),
    ("Degraded", queue(DONE | {"Ready": "False RedisNotEmpty", "Accepted": "False RedisNotEmpty"})),
    ("Degraded", queue(DONE | {"Progressing": "False ProgressDeadlineExceeded"})),
    ("Degraded", queue(DONE | {"Ready": "False WorkersNotReady", "Degraded": "True PodsFailing"})),
]


def test_argo_cd_sees_the_health_that_the_page_promises(redis_server: RedisServer) -> None:
    with redis_server.client() as redis:
        seen = [redis.eval(SCRIPT, 0, json.dumps(found)) for _, found in FOUND]
    assert seen == [health for health, _ in FOUND]
