"""`make bench-http`: how many tasks per second `delayq api` stores, with p50 and p99 of its answers.

Redis, the API and the load share two cores of this machine. The API checks tokens and rights, as on Kubernetes. The
Python client stores the same tasks in the same Redis, in alternation with the API, and their ratio is printed.
Requests are encoded before a round, and the load reads no more of an answer than its status and its length.
One process serves, and then two, as on Kubernetes by default; connections are spread over them.
CPU time is that of the processes per task. It varies less than the rate where others use the cores, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final, NamedTuple

import uvloop
import yaml
from delayq import Client, NewTask
from delayq.api.access.named_tokens import hash_of, new_token
from delayq.api.routes import PREFIX
from delayq.client.encoding import new_id

from benchmarks.machine import facts
from benchmarks.resident.__main__ import Memory
from tests.processes import DELAYQ, running
from tests.servers import PREFERRED, RedisServer, free_port
from tests.unit.api.issuer import Volume, claims, key_set, sign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

CORES: Final = 2
TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
PAYLOAD: Final = {"n": "x" * 92}  # about 100 bytes of JSON
DELAY_MS: Final = 3_600_000
SPEC: Final = {
    "redis": {"standalone": {"host": "127.0.0.1"}},
    "handler": {
        "http": {"url": "http://127.0.0.1/"},
        "kinds": {"email": {"http": {"url": "http://127.0.0.1/"}}},
    },
    "api": {
        "allowPlainHttp": True,
        "tokensSecretRef": {"name": "tokens"},
        "access": [
            {"token": "shop", "verbs": ["schedule"], "kinds": ["email"]},
            {
                "serviceAccount": {"namespace": "shop", "name": "web"},
                "verbs": ["schedule"],
                "kinds": ["email"],
            },
        ],
    },
}
ANSWER: Final = re.compile(rb"HTTP/1.1 ([0-9]+) .*?\r\ncontent-length: ([0-9]+)\r\n.*?\r\n\r\n", re.DOTALL)


class Case(NamedTuple):
    """What is sent in a round, and how."""

    name: str
    token: str
    calls: int
    size: int
    """Tasks in a call; 0: single tasks."""
    at_once: int


class Round(NamedTuple):
    """What a round measured."""

    tasks_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: dict[str, float]
    """CPU time of each process per task."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http", description=__doc__)
    parser.add_argument("--connections", type=int, default=32, help="of single tasks (%(default)s)")
    parser.add_argument("--singles", type=int, default=10_000, help="single tasks in a round (%(default)s)")
    parser.add_argument("--batches", type=int, default=60, help="batches in a round (%(default)s)")
    parser.add_argument("--size", type=int, default=1_000, help="tasks in a batch (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median is printed (%(default)s)")
    parser.add_argument(
        "--processes",
        type=int,
        nargs="+",
        default=[1, 2],
        help="of the API (%(default)s, one after the other)",
    )
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # child processes inherit it
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer.start(PREFERRED, dir=Path(folder, "redis"))
        try:
            _print_machine(server)
            cases = _cases(options, Path(folder))
            for processes in options.processes:
                with _serving(server, Path(folder), processes) as served:
                    for case in cases:
                        uvloop.run(_measure(served, case, options.rounds))
        finally:
            server.stop()
    return 0


def _print_machine(server: RedisServer) -> None:
    found = facts(server)
    where = "{cores} cores of {cpu}, Python {python}, {against}; load before: {load_before}"
    print(where.format(**found), flush=True)


class Served(NamedTuple):
    """A running API: one or several processes."""

    document: Path
    server: RedisServer
    ports: list[int]
    pids: list[int]


@contextmanager
def _serving(server: RedisServer, folder: Path, processes: int) -> Iterator[Served]:
    """Run the API. Its log goes to a file: to read it would take a share of the cores."""
    metadata = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": "orders"}}
    document = folder / "queue.yaml"
    document.write_text(yaml.safe_dump({**metadata, "spec": SPEC}))
    secrets = {"DELAYQ_SECRETS_DIR": str(folder / "secrets")}
    served = Served(document, server, [], [])
    print(f"\n{processes} process{'es' * (processes > 1)}", flush=True)
    with ExitStack() as stack:
        for _ in range(processes):
            port = free_port()
            argv = (DELAYQ, "api", document, "--redis", server.url, "--port", "0", "--api-port", port)
            to_file = ("sh", "-c", f'exec "$@" 2>>"{folder}/log"', "sh", *map(str, argv))
            process = stack.enter_context(running(*to_file, env=secrets))
            process.wait_http(f"http://127.0.0.1:{port}{PREFIX}/openapi.json")
            served.ports.append(port)
            served.pids.append(process.pid)
        for pid in served.pids:
            memory = Memory.of(pid)
            print(
                f"  idle: {memory.resident:.1f} MB resident, {memory.proportional:.1f} MB proportional",
                flush=True,
            )
        yield served


def _cases(options: argparse.Namespace, folder: Path) -> list[Case]:
    """Write the tokens that the API accepts, and return what is measured."""
    named, now = new_token(), int(time.time())
    Volume(folder / "issuer").write(key_set(("RS256", "one")))
    Volume(folder / "secrets" / "tokens", "shop").write(hash_of(named))
    account = sign(claims(iat=now, nbf=now, exp=now + 3600))
    return [
        Case("single, named token", named, options.singles, 0, options.connections),
        Case("single, ServiceAccount", account, options.singles, 0, options.connections),
        # A process takes two batches at a time.
        Case(f"batches of {options.size:,}, ServiceAccount", account, options.batches, options.size, 2),
    ]


async def _measure(served: Served, case: Case, rounds: int) -> None:
    """Send the same by HTTP and by the Python client, in alternation."""
    pairs = []
    async with Client.from_document(served.document, url=served.server.url) as client:
        for number in range(rounds + 1):
            pairs.append((await _by_http(served, case), await _by_client(served, case, client)))
            print(f"\r{case.name}: round {number} of {rounds}", end="", file=sys.stderr, flush=True)
    print("\r\033[K", end="", file=sys.stderr, flush=True)
    _print(case, pairs[1:])  # the first one warms up


class Load:
    """Sends requests on several connections, each the next one as soon as it has an answer."""

    def __init__(self, requests: list[bytes], status: bytes) -> None:
        self.seconds, self.done = list[float](), asyncio.get_running_loop().create_future()
        self._requests, self.status, self._left = iter(requests), status, len(requests)

    def answered(self, status: bytes, seconds: float) -> bytes | None:
        """Record an answer, and return the next request."""
        self.seconds.append(seconds)
        self._left -= 1
        if not self.done.done() and (status != self.status or not self._left):
            self.done.set_result(status)
        return next(self._requests, None)

    def first(self) -> bytes | None:
        """Return the first request of a connection."""
        return next(self._requests, None)


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load) -> None:
        self._load, self._received = load, b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # of sockets
        """Begin."""
        self._transport = transport

    def send(self, request: bytes | None) -> None:
        """Send a request; none is left: do nothing."""
        if request is not None:
            self._began = time.perf_counter()
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Wait for a whole answer."""
        self._received += data
        head = ANSWER.match(self._received)
        if head is None or len(self._received) < head.end() + int(head[2]):
            return
        self._received = b""
        self.send(self._load.answered(head[1], time.perf_counter() - self._began))


async def _by_http(served: Served, case: Case) -> Round:
    """Send the requests of one round to the API."""
    headers = (
        f" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {case.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    )
    task = {"payload": PAYLOAD, "delayMs": DELAY_MS}

    def request() -> bytes:
        if not case.size:
            line, body = f"PUT {PREFIX}/tasks/email/{new_id()}", json.dumps(task)
        else:
            line = f"POST {PREFIX}/tasks:batch"
            body = json.dumps(
                {"tasks": [{"kind": "email", "id": new_id(), **task} for _ in range(case.size)]}
            )
        return f"{line}{headers}{len(body)}\r\n\r\n{body}".encode()

    load = Load([request() for _ in range(case.calls)], b"200" if case.size else b"201")
    opened = [
        await asyncio.get_running_loop().create_connection(lambda: Connection(load), "127.0.0.1", port)
        for port in islice(cycle(served.ports), case.at_once)
    ]

    async def send() -> list[float]:
        for _, connection in opened:
            connection.send(load.first())
        if (status := await load.done) != load.status:
            raise RuntimeError(f"got status {status.decode()}")
        return load.seconds

    found = await _round(served, case, send)
    for transport, _ in opened:
        transport.close()
    return found


async def _by_client(served: Served, case: Case, client: Client) -> Round:
    """Store the tasks of one round with the Python client."""
    each = case.size or 1
    calls = [
        [NewTask(PAYLOAD, DELAY_MS, task_id=new_id(), kind="email") for _ in range(each)]
        for _ in range(case.calls)
    ]
    seconds = list[float]()

    async def one_after_the_other() -> None:
        while calls:
            tasks, began = calls.pop(), time.perf_counter()
            if case.size:
                await client.schedule_many(tasks, if_exists="keep")
            else:
                await client.schedule(
                    PAYLOAD, delay_ms=DELAY_MS, task_id=tasks[0].task_id, kind="email", if_exists="keep"
                )
            seconds.append(time.perf_counter() - began)

    async def send() -> list[float]:
        await asyncio.gather(*(one_after_the_other() for _ in range(case.at_once)))
        return seconds

    return await _round(served, case, send)


async def _round(served: Served, case: Case, send: Callable[[], Awaitable[list[float]]]) -> Round:
    """Measure one round."""
    pids = {"API": served.pids, "Redis": [served.server.process.pid], "load": [os.getpid()]}
    before, began = {name: _cpu_seconds(each) for name, each in pids.items()}, time.perf_counter()
    seconds = await send()
    took, tasks = time.perf_counter() - began, case.calls * (case.size or 1)
    cpu_us = {name: (_cpu_seconds(each) - before[name]) * 1e6 / tasks for name, each in pids.items()}
    percentiles = quantiles(seconds, n=100, method="inclusive")
    return Round(tasks / took, percentiles[49] * 1000, percentiles[98] * 1000, cpu_us)


def _cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of some processes so far."""
    found = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(fields[11]) + int(fields[12]) for fields in found) * TICK_SECONDS


def _print(case: Case, pairs: list[tuple[Round, Round]]) -> None:
    print(f"  {case.name}")
    for at, how in enumerate(("HTTP API", "Python client")):
        rounds = [pair[at] for pair in pairs]
        cpu = {name: median(each.cpu_us[name] for each in rounds) for name in rounds[0].cpu_us}
        print(
            f"    {how:<14}{median(each.tasks_per_second for each in rounds):>8,.0f} tasks/s"
            f"  p50 {median(each.p50_ms for each in rounds):6.2f} ms"
            f"  p99 {median(each.p99_ms for each in rounds):6.2f} ms"
            f"  CPU per task: {', '.join(f'{name} {us:.0f} µs' for name, us in cpu.items())}"
        )
    ratios = [http.tasks_per_second / python.tasks_per_second for http, python in pairs]
    print(f"    HTTP/Python   {median(ratios):8.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
