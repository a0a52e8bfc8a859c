"""B, C: from the start of a container to what it is started for. B is in seconds, C is the processor's part.

A pod with a limit below one processor takes C divided by the limit, at least.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, at_most
from tests.images.container import Container, first, terminate
from tests.processes import Gone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.images.archive import Image
    from tests.processes import Process
    from tests.servers import RedisServer

HANDLERS = {"worker": "time:sleep", "hello": "shop.orders:cancel_unpaid", "shop": "mail.reminder:remind"}
DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {{name: starts}}
spec:
  redis: {{standalone: {{host: 127.0.0.1, port: {port}}}}}
  handler: {{python: {{callable: "{handler}"}}}}
"""
CLAIMED = "delayq_worker_first_claim_timestamp_seconds{"
LOOK_SECONDS, PATIENCE_SECONDS = 0.003, 60
MOST_SECONDS = at_most(1.5)


def figures(name: str, image: Image, root: Path, *, server: RedisServer, runs: int) -> list[Figure]:
    """Start one role again and again; the first start only warms the disk's cache."""
    container = Container(image, root)
    if name == "operator":
        return _helps(container, runs)
    config = root / "etc" / "delayq" / "queue.yaml"
    config.parent.mkdir()
    config.write_text(DOCUMENT.format(port=server.port, handler=HANDLERS[name]))
    found = [_start(container, "worker") for _ in range(runs + 1)][1:]
    figures = [
        Figure(bench="B", name="worker: first claim", unit="s", runs=_each(found, 1), target=MOST_SECONDS),
        Figure(bench="B", name="worker: /readyz answers 200", unit="s", runs=_each(found, 0)),
        Figure(bench="C", name="worker: processor's time until then", unit="s", runs=_each(found, 2)),
    ]
    if name == "worker":
        found = [_start(container, "scanner") for _ in range(runs + 1)][1:]
        figures.insert(
            2, Figure(bench="B", name="scanner: /readyz answers 200", unit="s", runs=_each(found, 0))
        )
        figures.append(
            Figure(bench="C", name="scanner: processor's time until then", unit="s", runs=_each(found, 2))
        )
    return figures


def _each(found: Sequence[tuple[float, float, float]], index: int) -> tuple[float, ...]:
    return tuple(run[index] for run in found)


def _start(container: Container, role: str) -> tuple[float, float, float]:
    """Return seconds until ready, until the first claim (of a worker), and of the processor until ready."""
    began = time.time()
    arguments = (role, "--port", "0", "/etc/delayq/queue.yaml")
    with container.running(*arguments) as process:
        port = json.loads(process.wait_line('"event": ?"started"'))["port"]
        _await_ready(process, f"http://127.0.0.1:{port}/readyz")
        ready, used = time.time() - began, _processor_seconds(first(process))
        text = process.wait_http(f"http://127.0.0.1:{port}/metrics").decode()
        claimed = next(
            (float(line.split()[-1]) for line in text.splitlines() if line.startswith(CLAIMED)), began
        )
        terminate(process)
        process.wait()
    return ready, claimed - began, used


def _await_ready(process: Process, url: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and not process.ended:
        with suppress(OSError), urllib.request.urlopen(url, timeout=1):  # noqa: S310 -- our own process
            return
        time.sleep(LOOK_SECONDS)
    raise Gone(f"{url} never answered 200:\n{process.output}")


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _helps(container: Container, runs: int) -> list[Figure]:
    """An operator needs a cluster to be ready; what it loads it loads for --help, too."""
    seconds = []
    for _ in range(runs + 1):
        began = time.time()
        container.output("delayq-operator", "--help")
        seconds.append(time.time() - began)
    return [Figure(bench="B", name="delayq-operator --help", unit="s", runs=tuple(seconds[1:]))]
