"""The examples of http and exec handlers do what their READMEs say, on an embedded Redis of their own."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient
from delayq.protocol.results import State

from tests.processes import DELAYQ, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def copied(name: str, to: Path) -> Path:
    ignore = shutil.ignore_patterns(".delayq", "outbox.txt", "__pycache__")
    return shutil.copytree(ROOT / "examples" / name, to / name, ignore=ignore)


def client(example: Path) -> SyncClient:
    url = (example / ".delayq" / "redis.url").read_text().strip()
    return SyncClient.from_document(example / "queue.yaml", url=url)


@pytest.fixture
def started() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in reversed(processes):
        process.stop(timeout_s=60)


def start(processes: list[Process], *argv: str, cwd: Path, says: str) -> Process:
    env = {**os.environ, "DELAYQ_SECRETS_DIR": "secrets", "PYTHONUNBUFFERED": "1"}
    process = Process.start(*argv, cwd=cwd, env=env)
    processes.append(process)
    process.wait_line(says, timeout_s=60)
    return process


def test_the_receiver_acks_asks_for_a_retry_and_buries(started: list[Process], tmp_path: Path) -> None:
    example = copied("http-callback", tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    document = example / "queue.yaml"
    document.write_text(document.read_text().replace("8087", str(port)))
    receiver = start(started, sys.executable, "receiver.py", str(port), cwd=example, says=str(port))
    start(started, DELAYQ, "run", "queue.yaml", cwd=example, says="due 0")
    assert Process.start(sys.executable, "schedule.py", cwd=example).wait(timeout_s=60) == 0
    receiver.wait_line(r"order-5 2 200", timeout_s=60)
    receiver.wait_line(r"order-13 1 404", timeout_s=60)
    with client(example) as orders:
        [dead] = orders.dlq_list()
    assert dead.id == "order-13"
    assert dead.failed.reason == "buried"


def test_the_command_acks_by_its_exit_code(started: list[Process], tmp_path: Path) -> None:
    example = copied("exec", tmp_path)
    run = start(started, DELAYQ, "run", "queue.yaml", cwd=example, says="due 0")
    assert Process.start(sys.executable, "schedule.py", cwd=example).wait(timeout_s=60) == 0
    run.wait_line(r"scheduled 0 · in flight 0 · retrying 0 · dead 1", timeout_s=60)
    assert len((example / "outbox.txt").read_text().splitlines()) == 3
    with client(example) as orders:
        assert orders.counts().dead == 1
        assert orders.list(State.SCHEDULED) == []
