"""`delayq run` serves the HTTP API of each queue on loopback, and checks kinds and arguments by its App."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from tests.processes import DELAYQ, running

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: shop}
spec:
  redis: {standalone: {host: not-used-here}}
  handler: {python: {app: "tasks:app"}}
  delivery: {leaseDurationSeconds: 3}
---
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: pushes}
spec:
  redis: {standalone: {host: not-used-here}}
  handler: {http: {url: "http://127.0.0.1:9/"}}
"""
TASKS = """\
import asyncio

from delayq import App

app = App()

@app.task
async def greet(name: str) -> None:
    print("hello", name)

@app.task
async def wait() -> None:
    print("waits")
    try:
        await asyncio.sleep(3600)
    finally:
        print("cleans up")
"""


def put(url: str, path: str, body: object) -> tuple[int, str]:
    return call(url, "PUT", path, body)


def call(url: str, method: str, path: str, body: object = None) -> tuple[int, str]:
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)", url)
    assert found, "on loopback"
    with closing(HTTPConnection("127.0.0.1", int(found[1]), timeout=60)) as connection:
        headers = {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        connection.request(method, f"/v1alpha1{path}", content, headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def test_a_run_serves_an_api_for_each_queue_and_cancels_runs(tmp_path: Path) -> None:
    """Its address is on the panel. A task that no function takes is refused, others run."""
    (tmp_path / "queues.yaml").write_text(QUEUES)
    (tmp_path / "tasks.py").write_text(TASKS)
    with running(DELAYQ, "run", "queues.yaml", cwd=tmp_path) as run:
        shop = run.wait_line(r"^shop +api +http").rpartition(" ")[2]
        pushes = run.wait_line(r"^pushes +api +http").rpartition(" ")[2]
        assert shop != pushes
        status, said = put(shop, "/tasks/greet/1", {"payload": {"nam": "ada"}})
        assert (status, json.loads(said)["errors"]) == (
            400,
            [
                {"path": "payload.name", "message": "missing argument"},
                {"path": "payload.nam", "message": "unknown argument"},
            ],
        )
        status, said = put(shop, "/tasks/greed/1", {"payload": {"name": "ada"}})
        assert (status, json.loads(said)["errors"][0]["path"]) == (400, "kind")
        assert json.loads(said)["detail"].endswith("did you mean greet?"), "nothing about Python"
        assert put(shop, "/tasks/greet/1", {"payload": {"name": "ada"}})[0] == 201
        run.wait_line("hello ada")
        assert put(pushes, "/tasks/any/1", {"delay": "1h"})[0] == 201
        assert put(shop, "/tasks/wait/1", {"payload": {}})[0] == 201
        run.wait_line("waits")
        assert call(shop, "DELETE", "/tasks/wait/1")[0] == 409
        assert call(shop, "DELETE", "/tasks/wait/1?running=true")[0] == 202
        run.wait_line("cleans up")
        deadline = time.monotonic() + 30
        while call(shop, "GET", "/tasks/wait/1")[0] != 404:  # its worker settles it after the cleanup
            assert time.monotonic() < deadline
            time.sleep(0.05)
