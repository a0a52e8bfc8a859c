"""The examples of http and exec handlers do what their READMEs say, on an embedded Redis of their own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from delayq.protocol.results import State

from tests.cluster.harness.server import free_port
from tests.examples.running import client, copied, done, served
from tests.processes import running

if TYPE_CHECKING:
    from pathlib import Path


def test_the_receiver_acks_asks_for_a_retry_and_buries(tmp_path: Path) -> None:
    example, port = copied("http-callback", tmp_path), str(free_port())
    document = example / "queue.yaml"
    document.write_text(document.read_text().replace("8087", port))
    with (
        running(sys.executable, "receiver.py", port, cwd=example) as receiver,
        served(example, DELAYQ_SECRETS_DIR="secrets"),
    ):
        done("python", "schedule.py", cwd=example)
        receiver.wait_line(r"order-5 2 200")
        receiver.wait_line(r"order-13 1 404")
        with client(example) as orders:
            [dead] = orders.dlq_list()
    assert dead.id == "order-13"
    assert dead.failed.reason == "buried"


def test_the_command_acks_by_its_exit_code(tmp_path: Path) -> None:
    example = copied("exec", tmp_path)
    with served(example) as run:
        done("python", "schedule.py", cwd=example)
        run.wait_line(r"scheduled 0 · in flight 0 · retrying 0 · dead 1")
        assert len((example / "outbox.txt").read_text().splitlines()) == 3
        with client(example) as orders:
            assert orders.counts().dead == 1
            assert orders.list(State.SCHEDULED) == []
