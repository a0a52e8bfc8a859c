"""Which events a report takes, also of pods that are gone, and what it says of metrics that it could not get."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from delayq_operator.base import names
from delayq_operator.kubectl import allowed
from delayq_operator.kubectl.refusals import refusal
from delayq_operator.kubectl.report import EVENTS, METRICS, _of_queue

LONG = "orders." * 10 + "eu"
WORKER = names.worker(LONG)  # 63 characters


def taken(queue: str, name: str) -> bool:
    heading, line = "OBJECT   KIND\n", f"{name}   Pod\n"
    found = _of_queue(queue, heading + line)
    assert found.startswith(heading)
    return found == heading + line


@pytest.mark.parametrize(
    ("queue", "name"),
    [
        ("orders", "orders"),
        *(("orders", name) for _, name in sorted(names.children("orders"))),
        ("orders", "orders-worker-6d5f8c7b9"),
        ("orders", "orders-worker-6d5f8c7b9-x2v4z"),
        ("orders", "orders-reaper-29401230-x2v4z"),
        *((LONG, name) for _, name in sorted(names.children(LONG))),
        (LONG, f"{WORKER}-6d5f8c7b9"),
        # Kubernetes shortens a generated name to 58 characters, and adds five.
        (LONG, f"{WORKER[:58]}x2v4z"),
        (LONG, f"{names.reaper(LONG)}-29401x2v4z"),
        ("9.orders", names.metrics_service("9.orders")),
    ],
)
def test_an_event_of_the_queue_is_taken(queue: str, name: str) -> None:
    assert taken(queue, name)


@pytest.mark.parametrize("name", ["orders-eu", "orders-eu-worker-6d5f8c7b9-x2v4z", "order"])
def test_an_event_of_another_object_is_not(name: str) -> None:
    assert not taken("orders", name)


def test_a_process_without_metrics_is_named_with_its_cause() -> None:
    """A frozen one, and one that has not begun to listen: not gathered, and why."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        refused = note_of(port)
        listening.listen()  # the kernel takes the connection, and no process answers
        frozen = note_of(port)
    assert refused == f"no metrics on port {port}, <urlopen error [Errno 111] Connection refused>"
    assert frozen == f"no metrics on port {port}, timed out"


def note_of(port: int) -> str:
    """What a report says of a pod whose metrics are on this port."""
    program = METRICS.replace(str(names.METRICS_PORT), str(port)).replace("timeout=5", "timeout=0.2")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return allowed.sentence(refusal(f"{done.stderr}command terminated with exit code 1\n").message)


def test_events_are_in_a_report_without_their_messages() -> None:
    """A message may quote a Secret, as that of a probe or of another controller does."""
    columns = EVENTS.partition("=custom-columns=")[2].split(",")
    assert {each.partition(":")[2] for each in columns} == {
        ".involvedObject.name",
        ".involvedObject.kind",
        ".lastTimestamp",
        ".type",
        ".reason",
        ".count",
        ".source.component",
    }
