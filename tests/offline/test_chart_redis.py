"""The chart's Redis, started with the very configuration and command line of its pod."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq.contract.acl import rule
from redis import Redis
from redis.exceptions import NoPermissionError

from tests.cluster.harness.server import free_port
from tests.offline.chart import find, rendered
from tests.processes import Process
from tests.servers import SPEAKS, binary

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "kept-to-itself"  # noqa: S105  of a Redis that lives as long as the test


@pytest.fixture
def redis(flavour: str, tmp_path: Path) -> Iterator[tuple[Redis, Process, dict[str, str]]]:
    """A Redis as the chart starts it, and the passwords of its queues; only directory and port are the test's."""
    tenant = hashlib.sha256(b"tenant").hexdigest()
    users = {"delayq-orders": f"on #{tenant} {rule(queue='orders', redis=SPEAKS[flavour])}"}
    queues = [{"name": "hello"}]
    given = {"enabled": True, "maxMemory": "5mb", "config": {"timeout": 7}, "users": users, "queues": queues}
    objects = rendered({"redis": given})
    secret = find(objects, "Secret", "hello-redis")["data"]
    config = find(objects, "ConfigMap", "delayq-redis")["data"]["redis.conf"]
    port = free_port()
    file = tmp_path / "redis.conf"
    file.write_text(config.replace("dir /data", f"dir {tmp_path}").replace("port 6379", f"port {port}"))
    (container,) = find(objects, "StatefulSet", "delayq-redis")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["redis-server"]
    words = {"/etc/redis/redis.conf": str(file), "$(REDISCLI_AUTH)": PASSWORD}
    process = Process.start(str(binary(flavour)), *(words.get(word, word) for word in container["args"]))
    process.wait_line("Ready to accept connections")
    with Redis(port=port, password=PASSWORD, decode_responses=True) as client:
        passwords = {"orders": "tenant", "hello": b64decode(secret["password"]).decode()}
        yield client, process, passwords
    process.stop()


SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory": str(5 * 1024 * 1024),
    "maxmemory-policy": "noeviction",
    "save": "",
    "timeout": "7",
    "protected-mode": "no",
}


@pytest.mark.every_redis
def test_every_redis_takes_the_configuration_and_gives_a_queue_a_user_of_its_own(
    redis: tuple[Redis, Process, dict[str, str]],
) -> None:
    """And hides the password."""
    client, process, passwords = redis
    assert SETTINGS.items() <= client.config_get("*").items()
    assert PASSWORD not in Path(f"/proc/{process.pid}/cmdline").read_text()
    for queue, password in passwords.items():
        client.auth(password, f"delayq-{queue}")
        assert client.llen(f"delayq:{{{queue}:0}}:wake") == 0
        with pytest.raises(NoPermissionError):
            client.llen("delayq:{payroll:0}:wake")
        with pytest.raises(NoPermissionError):
            client.config_get("requirepass")
