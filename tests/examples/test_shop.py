"""examples/shop: the five kinds run as its README says, and three web frameworks schedule with the same App."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient
from delayq.protocol.results import State

from tests.processes import DELAYQ, Process
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOP = Path(__file__).parents[2] / "examples" / "shop"


@pytest.fixture
def started() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in reversed(processes):
        process.stop(timeout_s=60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_one_queue_runs_all_five_kinds(started: list[Process], tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns(".delayq", "__pycache__")
    shop = shutil.copytree(SHOP, tmp_path / "shop", ignore=ignore)
    port = free_port()
    document = shop / "queue.yaml"
    document.write_text(document.read_text().replace("8088", str(port)))
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    service = Process.start(sys.executable, "push.py", str(port), cwd=shop, env=env)
    started.append(service)
    service.wait_line(str(port), timeout_s=60)
    run = Process.start(DELAYQ, "run", "queue.yaml", cwd=shop, env=env)
    started.append(run)
    run.wait_line("due 0", timeout_s=60)
    env["SHOP_REDIS_URL"] = (shop / ".delayq" / "redis.url").read_text().strip()
    assert Process.start(sys.executable, "plan.py", cwd=shop, env=env).wait(timeout_s=60) == 0
    for line in (
        "report of 2026-11-25 written",
        "reminder about order 7 by sms",
        "order 7 cancelled: unpaid",
        "order 7 refunded: 9.95",
    ):
        run.wait_line(line, timeout_s=60)
    service.wait_line("push about order 7, attempt 1", timeout_s=60)
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    roles = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children]
    stay = [role for role in roles if "redis-server" not in role and "\0reaper\0" not in role]
    assert len(stay) == 2, roles  # a worker and a scanner; the run itself is the third process


SERVERS = {
    "fastapi": ("-m", "uvicorn", "web.fastapi_shop:web", "--port", "{port}"),
    "flask": ("-m", "flask", "--app", "web.flask_shop:web", "run", "--port", "{port}"),
    "django": ("-m", "web.django_shop", "runserver", "127.0.0.1:{port}", "--noreload"),
}


@pytest.mark.parametrize("framework", SERVERS)
def test_a_web_framework_schedules_with_the_app(
    framework: str, started: list[Process], tmp_path: Path
) -> None:
    redis = RedisServer.start(PREFERRED, dir=tmp_path / "redis")
    try:
        port = free_port()
        argv = [each.format(port=port) for each in SERVERS[framework]]
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "SHOP_REDIS_URL": redis.url}
        server = Process.start(sys.executable, *argv, cwd=SHOP, env=env)
        started.append(server)
        server.wait_line(rf"127\.0\.0\.1:{port}", timeout_s=60)
        request = urllib.request.Request(f"http://127.0.0.1:{port}/orders/7", method="POST")
        for _ in range(2):  # a double click schedules one task
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 -- our own server
                assert (answer.status, answer.read().replace(b" ", b"").strip()) == (
                    201,
                    b'{"task":"cancel_unpaid:order-7"}',
                )
        with SyncClient.from_document(SHOP / "queue.yaml", url=redis.url) as client:
            [row] = client.list(State.SCHEDULED)
            view = client.get(row.id)
        assert view is not None
        assert (view.kind, view.body) == ("cancel_unpaid", b'{"order":7}')
    finally:
        server.stop(timeout_s=60)
        redis.stop()
