"""`python -m benchmarks.schedules`: what 10,000 schedules cost an idle leader, and how soon a change is applied.

A scanner leads one queue. Its CPU time and the calls that Redis receives are counted for 30 s without schedules, and
with 10,000 daily ones, of which seven are due for a look each minute. Then single schedules are changed one after the
other: applied is when the first occurrence of the new definition exists.

With --kubernetes the schedules are objects of a real API server, which the scanner watches, and whose status it writes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import redis
import yaml
from delayq import Client
from delayq.contract.document import parse_schedule, to_document
from delayq.scanner.schedule_watch import PAGE, PAGE_SECONDS, PASS_SECONDS

from benchmarks.pairs.measure import cpu_seconds
from tests.cluster.harness.control_plane import ControlPlane
from tests.cluster.harness.resources import install_crd
from tests.cluster.harness.rest import APPLY
from tests.processes import Process
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from delayq.contract.schedule import DelaySchedule

QUEUE = "schedules"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000, metavar="N", help="(%(default)s)")
    parser.add_argument("--seconds", type=int, default=30, help="of each idle time (%(default)s)")
    parser.add_argument("--edits", type=int, default=200, metavar="N", help="(%(default)s)")
    parser.add_argument("--kubernetes", action="store_true", help="DelaySchedules of an API server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer.start(PREFERRED, dir=Path(folder) / "redis")
        try:
            if options.kubernetes:
                with _cluster(Path(folder)) as cluster:
                    asyncio.run(_measure(server, Path(folder), options, cluster))
            else:
                asyncio.run(_measure(server, Path(folder), options, None))
        finally:
            server.stop()
    return 0


@contextmanager
def _cluster(folder: Path) -> Iterator[ControlPlane]:
    """A control plane with our kinds, and what the kubelet would mount for a scanner that may do everything."""
    plane = ControlPlane.start(folder / "plane")
    try:
        install_crd(plane)
        subject = "--serviceaccount=default:default"
        plane.kubectl("create", "clusterrolebinding", "scanner", "--clusterrole=cluster-admin", subject)
        (folder / "token").write_text(plane.token("default", "default"))
        (folder / "namespace").write_text("default")
        (folder / "ca.crt").write_text(plane.authority.read_text())
        server = urlsplit(plane.url)
        os.environ |= {
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "DELAYQ_SERVICE_ACCOUNT_DIR": str(folder),
        }
        yield plane
    finally:
        plane.stop()


async def _measure(
    server: RedisServer, folder: Path, options: argparse.Namespace, cluster: ControlPlane | None
) -> None:
    document = folder / "queue.yaml"
    spec = {
        "redis": {"standalone": {"host": "127.0.0.1"}},
        "handler": {"python": {"callable": "benchmarks.handlers:noop"}},
        "schedules": {},
    }
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": QUEUE}}
    document.write_text(yaml.safe_dump({**head, "spec": spec}))
    argv = (sys.executable, "-m", "delayq", "scanner", str(document), "--redis", server.url)
    scanner = Process.start(*argv, "--port", "0")
    apply = partial(_apply, cluster) if cluster else None
    try:
        scanner.wait_line('"leadership_acquired"')
        with redis.Redis(port=server.port) as counting:
            async with Client(server.url, queue=QUEUE) as client:
                _print("no schedules", await _idle(counting, scanner.pid, options.seconds))
                began = time.perf_counter()
                for first in range(0, options.schedules, 100):
                    some = range(first, min(first + 100, options.schedules))
                    write = apply or client.apply_schedule
                    await asyncio.gather(*(write(_daily(number)) for number in some))
                    print(f"\r{first + 100} schedules written", end="", file=sys.stderr, flush=True)
                wrote = options.schedules / (time.perf_counter() - began)
                print(f"\r{options.schedules} schedules written, {wrote:,.0f} a second", file=sys.stderr)
                while counting.zcard(f"delayq:{{{QUEUE}:0}}:schedules") < options.schedules:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                while counting.zcount(f"delayq:{{{QUEUE}:0}}:schedules", "-inf", time.time() * 1000):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                took = time.perf_counter() - began
                if cluster:
                    print(f"applied with status {options.schedules / took:9,.0f} a second", flush=True)
                    await asyncio.sleep(
                        2 * max(PASS_SECONDS, options.schedules / PAGE * PAGE_SECONDS)
                    )  # and a first pass
                _print(f"{options.schedules} schedules", await _idle(counting, scanner.pid, options.seconds))
                await _edits(
                    client, options.edits, partial(_applied, cluster) if cluster else client.apply_schedule
                )
    finally:
        scanner.stop()


def _daily(number: int) -> DelaySchedule:
    return _schedule(f"daily-{number}", cron=f"{number % 60} {number // 60 % 24} * * *")


def _schedule(name: str, **spec: object) -> DelaySchedule:
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": name}}
    return parse_schedule({**head, "spec": {"queueRef": {"name": QUEUE}, **spec}})


async def _idle(counting: redis.Redis, pid: int, seconds: int) -> tuple[float, float]:
    """Return CPU seconds of the scanner, and commands of Redis a second; a call counts as one."""
    calls, cpu = _calls(counting), cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return cpu_seconds(pid) - cpu, (_calls(counting) - calls) / seconds


def _calls(counting: redis.Redis) -> int:
    found = counting.info("commandstats")
    return sum(
        each["calls"] for name, each in found.items() if name.startswith(("cmdstat_eval", "cmdstat_blpop"))
    )


def _print(what: str, found: tuple[float, float]) -> None:
    print(f"{what:<20}{found[0]:7.3f} CPU-s of the leader  {found[1]:6.2f} calls/s", flush=True)


PATH = "/apis/delayq.dev/v1alpha1/namespaces/default/delayschedules"


async def _apply(cluster: ControlPlane, schedule: DelaySchedule) -> int:
    """Server-side apply; return the generation."""
    body: Any = to_document(schedule)
    query = {"fieldManager": "benchmark", "force": "true"}
    patch = partial(cluster.rest.patch, f"{PATH}/{schedule.metadata.name}", body, APPLY, **query)
    return int((await asyncio.to_thread(patch))["metadata"]["generation"])


async def _applied(cluster: ControlPlane, schedule: DelaySchedule) -> None:
    """Apply, and wait until the status says so."""
    generation = await _apply(cluster, schedule)
    while True:
        found = await asyncio.to_thread(cluster.rest.get, f"{PATH}/{schedule.metadata.name}")
        if found.get("status", {}).get("observedGeneration") == generation:
            return


async def _edits(client: Client, edits: int, apply: Callable[[DelaySchedule], Awaitable[object]]) -> None:
    found = []
    for number in range(edits):
        seconds = 60 + number
        began = time.perf_counter()
        await apply(_schedule("daily-0", everySeconds=seconds))
        while True:
            [page] = [await client.count_many(tag="@daily-0")]
            if page.tasks:
                break
        found.append(time.perf_counter() - began)
    p99 = quantiles(found, n=100)[98]
    print(f"edit to applied     {median(found) * 1000:7.1f} ms median  {p99 * 1000:6.1f} ms p99", flush=True)


if __name__ == "__main__":
    sys.exit(main())
