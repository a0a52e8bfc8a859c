"""What hostile clients send to the HTTP API is bounded and others are served; what ends the API loses nothing."""

from __future__ import annotations

import json
import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.process.fleet import until
from tests.process.http_api import JSON, PREFIX, received, resident_mb, serving
from tests.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.http_api import Served


@pytest.fixture
def api(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(flavour, tmp_path_factory.mktemp("api")) as served:
        yield served


def head(*lines: str) -> bytes:
    return "\r\n".join((f"PUT {PREFIX}/tasks/-/a HTTP/1.1", "Host: localhost", *lines, "", "")).encode()


def test_hostile_requests_are_bounded_and_others_served(api: Served) -> None:
    """A slow head, slow bodies, a header bomb, a body of 1 GiB, and JSON of 10,000 levels, all at once."""
    slow_head, bomb, huge = api.socket(), api.socket(), api.socket()
    slow_bodies = [api.socket() for _ in range(2)]
    idle = [api.socket() for _ in range(200)]
    with closing(slow_head), closing(bomb), closing(huge):
        slow_head.sendall(b"PUT /v1alpha1/tasks/-/slow HTTP/1.1\r\nHost: loc")
        for each in slow_bodies:
            each.sendall(head("Content-Type: application/json", "Content-Length: 100"))
            each.sendall(b"{")
        huge.sendall(
            head("Content-Type: application/json", f"Content-Length: {1 << 30}", "Expect: 100-continue")
        )
        assert received(huge).startswith(b"HTTP/1.1 413 ")
        try:
            for _ in range(200):
                bomb.sendall(b"X-Bomb: " + b"x" * 4_000 + b"\r\n" if _ else head()[:-2])
        except OSError:
            pass  # it has closed the connection
        for deep in (
            b"[" * 10_000 + b"]" * 10_000,
            b'{"payload":' + b"[" * 10_000 + b"1" + b"]" * 10_000 + b"}",
        ):
            assert api.call("PUT", "/tasks/-/deep", deep).kind == "invalid-request"
        began = time.monotonic()
        assert api.call("PUT", "/tasks/-/served").status == 201
        assert time.monotonic() - began < 5, "hostile clients do not delay others"
        assert resident_mb(api.process.pid) < 200
        slow_head.settimeout(30)
        assert received(slow_head) == b"", "closed after 10 s"
    for each in (*idle, *slow_bodies):
        each.close()
    assert api.call("GET", "/tasks/-/slow").status == 404


@pytest.mark.full
def test_large_bodies_that_stall_are_bounded_and_others_served(api: Served) -> None:
    """Each is below the limit of a body. Without a bound on all together, 400 of them took 800 MB."""
    size = 2 << 20
    with ExitStack() as stack:
        for each in [stack.enter_context(closing(api.socket())) for _ in range(400)]:
            with suppress(OSError):  # it was refused, and closed
                each.sendall(head("Content-Type: application/json", f"Content-Length: {size}"))
                each.sendall(b" " * (size - 10))
        assert resident_mb(api.process.pid) < 200
        assert api.call("PUT", "/tasks/-/small", {"payload": "x" * 10_000}).status == 201
    large = {"payload": "x" * 250_000}
    until(lambda: api.call("PUT", "/tasks/-/large", large).status == 201, "there is room again")


def test_a_body_of_a_million_lists_is_refused(api: Served) -> None:
    """They would take 30 times as much memory as their text."""
    lists = b'{"tasks": [{"payload": [' + b"[]," * 1_000_000 + b"[]]}]}"
    reply = api.call("POST", "/tasks:batch", lists)
    assert (reply.kind, "at most 500,000 lists and objects" in reply.body["detail"]) == (
        "invalid-request",
        True,
    )


@pytest.mark.full
def test_10_000_idle_connections_are_bounded_and_end(api: Served) -> None:
    """The first 2,000 are kept for 10 s; a client that was there before is served meanwhile, others after it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(12_000, hard), hard))
    with closing(HTTPConnection("127.0.0.1", api.port, timeout=60)) as open_before, ExitStack() as stack:
        for _ in range(10_000):
            stack.enter_context(closing(api.socket()))
            if _ % 1_000 == 0:
                open_before.request("GET", f"{PREFIX}/queue")
                answer = open_before.getresponse()
                assert (answer.status, bool(answer.read())) == (200, True), "others are served"
        assert resident_mb(api.process.pid) < 250
        until(lambda: _served(api), "idle connections end", timeout_s=20)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _served(api: Served) -> bool:
    with closing(HTTPConnection("127.0.0.1", api.port, timeout=60)) as connection:
        try:
            connection.request("GET", f"{PREFIX}/queue")
            return connection.getresponse().status == 200
        except OSError:
            return False


def test_a_chunked_body_is_bounded_too(api: Served) -> None:
    with closing(api.socket()) as connection:
        connection.sendall(head("Content-Type: application/json", "Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        for _ in range(40):
            connection.sendall(chunk)
        connection.sendall(b"0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_third_batch_is_refused_while_two_are_read(api: Served) -> None:
    """Also of slow clients, whose batches do not keep single tasks away."""
    body = json.dumps({"tasks": [{"id": "a"}]}).encode()
    lines = f"POST {PREFIX}/tasks:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    start = f"{lines}Content-Length: {len(body)}\r\n\r\n".encode()
    with closing(api.socket()) as one, closing(api.socket()) as two:
        for each in (one, two):
            each.sendall(start)

        def refused() -> bool:
            return api.call("POST", "/tasks:batch", {"tasks": []}).status == 503

        until(refused, "two batches are read")
        reply = api.call("POST", "/tasks:batch", {"tasks": []})
        assert (reply.kind, reply.headers["retry-after"]) == ("busy", "1")
        assert api.call("PUT", "/tasks/-/single").status == 201
        for each in (one, two):
            each.sendall(body)
            assert each.recv(100).startswith(b"HTTP/1.1 200 ")
    assert api.call("POST", "/tasks:batch", {"tasks": []}).status == 200


def test_a_kill_within_batches_loses_and_doubles_nothing(api: Served) -> None:
    """The client repeats a batch that has no answer, with the same IDs."""
    names = [[f"{nth}-{n}" for n in range(2_000)] for nth in range(6)]

    def store(batch: list[str]) -> None:
        body = {"tasks": [{"id": each, "delay": "1h"} for each in batch]}
        while True:
            try:
                if api.call("POST", "/tasks:batch", body).status == 200:
                    return
            except (OSError, HTTPException):
                time.sleep(0.02)  # the API starts again

    with ThreadPoolExecutor(3) as pool:
        storing = [pool.submit(store, batch) for batch in names]
        with api.client() as client:
            for tasks in (1, 3_000, 6_000):
                until(lambda least=tasks: client.counts().scheduled >= least, "some are stored")  # type: ignore[misc]
                api.process.kill()
                api.start()
        for each in storing:
            each.result()
    with api.client() as client:
        assert client.counts().scheduled == 12_000


def test_sigterm_answers_every_request(api: Served) -> None:
    """Each request on a connection that stays open has an answer, the last one says so, and each 201 is stored."""
    stored, lost, barrier = set[str](), list[str](), threading.Barrier(9)

    def send(number: int) -> None:
        n = 0
        with closing(HTTPConnection("127.0.0.1", api.port, timeout=30)) as connection:
            barrier.wait()
            while True:
                n += 1
                name = f"{number}-{n}"
                try:
                    connection.request("PUT", f"{PREFIX}/tasks/-/{name}", b'{"delay":"1h"}', JSON)
                    reply = connection.getresponse()
                    reply.read()
                except (OSError, HTTPException):
                    lost.append(name)
                    return
                assert reply.status == 201
                stored.add(name)
                if reply.headers["connection"] == "close":
                    return

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    barrier.wait()
    until(lambda: len(stored) > 50, "requests are answered")
    api.process.send(signal.SIGTERM)
    assert api.process.wait() == 0
    for each in threads:
        each.join()
    assert not lost
    with api.client() as client:
        assert client.counts().scheduled == len(stored)


@pytest.mark.full
def test_50_faults_within_batches_lose_and_double_nothing(
    flavour: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """kill -9 and SIGSTOP of the API and of Redis, while three clients repeat what has no answer."""
    path, random = tmp_path_factory.mktemp("faults"), Random(1)
    redis = RedisServer.start(flavour, dir=path / "redis", appendonly=True, config={"appendfsync": "always"})
    with serving(flavour, path, server=redis) as api, ThreadPoolExecutor(3) as pool:
        ended, stored = threading.Event(), list[str]()

        def schedule(client: int) -> None:
            batch = 0
            while not ended.is_set():
                batch += 1
                names = [f"{client}-{batch}-{n}" for n in range(500)]
                while not _stores(api, names):
                    time.sleep(0.02)
                stored.extend(names)

        clients = [pool.submit(schedule, number) for number in range(3)]
        try:
            for number in range(50):
                least = len(stored)
                until(lambda least=least: len(stored) > least, "batches are stored", timeout_s=60)  # type: ignore[misc]
                time.sleep(random.uniform(0, 0.05))
                _fault(api, number % 4, random.uniform(0, 0.5))
        finally:
            ended.set()
        for each in clients:
            each.result()
        with api.client() as client:
            counts = client.counts()
            found = [(each.id, each.payload) for each in client.tasks()]
        assert counts.scheduled == len(stored)
        assert sorted(found) == sorted(zip(stored, stored, strict=True))


def _stores(api: Served, names: list[str]) -> bool:
    body = {"tasks": [{"id": each, "delay": "1h", "payload": each} for each in names]}
    try:
        return api.call("POST", "/tasks:batch", body).status == 200
    except (OSError, HTTPException):
        return False


def _fault(api: Served, kind: int, seconds: float) -> None:
    match kind:
        case 0:
            api.process.kill()
            api.start()
        case 1:
            api.server.kill()
            api.server.launch()
        case 2:
            api.process.pause()
            time.sleep(seconds)
            api.process.resume()
        case _:
            api.server.pause()
            time.sleep(seconds)
            api.server.resume()
