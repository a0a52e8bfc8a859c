"""What a pod may answer, for the image is its tenant's: nothing of it is believed, followed, or repeated."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from delayq.contract.files import Reference
from delayq.contract.metrics import DURABILITY_RISKS, KINDS_SAMPLED, MOST_KINDS, MOST_MISSING, OUTCOMES
from delayq.contract.queue import MOST_SHARDS
from delayq.service.counters import WorkerCounters
from delayq.service.exposition import render
from delayq.service.metrics import process_families, queue_families, worker_families
from delayq_operator.cache.pod import read
from delayq_operator.polling.worker_poller import OF_A_WORKER
from delayq_operator.scrape import exposition
from delayq_operator.scrape.backlog import NEEDED
from delayq_operator.scrape.exposition import Client, Question, parsed

from tests.exposition import samples
from tests.unit.operator.scrape.test_backlog import BUSY, NONE, counts, scanner_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from delayq_operator.base.objects import Sample

    Serve = Callable[[asyncio.StreamWriter], Awaitable[None]]

POD = read(
    {
        "metadata": {
            "name": "orders-scanner-1",
            "labels": {"app.kubernetes.io/component": "scanner"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "status": {"podIP": "127.0.0.1"},
    }
)
WORDS = "root:hunter2"
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
LINE = b'delayq_tasks{queue="orders",shard="0",state="scheduled"} 3\n'
NO_METRICS = "orders-scanner-1 answers something that is no metrics exposition"
TOO_MUCH = "orders-scanner-1 answers more than it can have to say"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stalls for two seconds is not a pod that does not answer."""
    monkeypatch.setattr(exposition, "TIMEOUT_SECONDS", 30.0)


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """A pod that answers any request like this, on a port of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(writer)
            await writer.drain()
        except ConnectionError:
            pass  # they had enough of it
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def asked(serve: Serve | bytes, question: Question | None = None) -> list[Sample] | str:
    async def send(writer: asyncio.StreamWriter) -> None:
        if isinstance(serve, bytes):
            writer.write(serve)
        else:
            await serve(writer)

    async with listening(send) as port, aclosing(Client(port)) as client:
        return await client.ask(POD, question)


def body(content: bytes, *headers: bytes) -> bytes:
    return b"".join([OK, *(header + b"\r\n" for header in headers), b"\r\n", content])


VALUES = ["0", "12", "1.5", "1.79527262379e+09", "1e-05", "-1.0", "NaN", "+Inf", "-Inf"]


def test_the_quick_parser_reads_what_prometheus_own_parser_does() -> None:
    text = scanner_text({0: True, 7: False}, ["evicts"], **BUSY).decode()
    lines = [line for line in text.splitlines() if "{" in line]
    lines += [f'a_b{{c="d",e=""}} {value}' for value in VALUES]
    strict = [(name, labels, float(number)) for name, labels, number in samples("\n".join(lines))]
    assert repr(parsed(lines)) == repr(strict)


@pytest.mark.parametrize(
    "line",
    [
        *["", "a 1", 'a{b="c"}1', 'a{b="c"', 'a{b="c"} 1_000', 'a{b="c"} 0x10', 'a{b="c"} 1 1700000000'],
        *['a{b="c",} 1', 'a{b="c"d="e"} 1', 'a{b="\\"} 1', 'a{b="c"} 1 # {} 1'],
    ],
)
def test_a_line_that_no_process_writes_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no sample"):
        parsed([line])


async def test_only_the_lines_that_count_are_read() -> None:
    text = scanner_text({0: True, 1: False}, ["evicts"], **BUSY)
    expected = [(name, labels) for name, labels, _ in samples(text.decode()) if name in NEEDED]
    found = await asked(body(text))
    assert isinstance(found, list)
    assert [(name, labels) for name, labels, _ in found] == expected


async def test_a_scanner_is_asked_for_horizons_at_their_port_and_a_worker_for_other_metrics() -> None:
    requests: list[tuple[str, bytes]] = []

    def answering(port: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requests.append((port, await reader.readline()))
            await reader.readuntil(b"\r\n\r\n")
            writer.write(body(LINE + b'delayq_worker_busy_slots{queue="orders"} 3\n'))
            writer.close()

        return answer

    metrics = await asyncio.start_server(answering("metrics"), "127.0.0.1", 0)
    horizons = await asyncio.start_server(answering("horizons"), "127.0.0.1", 0)
    ports = (each.sockets[0].getsockname()[1] for each in (metrics, horizons))
    async with metrics, horizons, aclosing(Client(*ports)) as client:
        await client.ask(POD, Question(horizons=(0.5, 15, 3600)))
        await client.ask(POD, Question(horizons=(0.5,), kinds_seconds=26.5))
        worker = await client.ask(POD, Question(frozenset({"delayq_worker_busy_slots"}), shards=1))
    assert requests == [
        ("horizons", b"GET /metrics?horizon=0.5&horizon=15&horizon=3600 HTTP/1.1\r\n"),
        ("horizons", b"GET /metrics?horizon=0.5&kinds_within=26.5 HTTP/1.1\r\n"),
        ("metrics", b"GET /metrics HTTP/1.1\r\n"),
    ]
    assert worker == [("delayq_worker_busy_slots", {"queue": "orders"}, 3.0)]


async def test_a_worker_of_as_many_kinds_as_it_reports_fits() -> None:
    counters = WorkerCounters("worker", "orders")
    for number in range(MOST_KINDS + 9):
        counters.kinds[f"kind-{number}"].runs = 3
        counters.kinds[f"kind-{number}"].settled.update(OUTCOMES)
    found = await asked(body(render(worker_families(counters))), OF_A_WORKER)
    assert isinstance(found, list)
    assert sum(name == "delayq_worker_kind_runs_total" for name, _, _ in found) == MOST_KINDS + 1


async def test_references_of_the_longest_names_fit() -> None:
    name, key = ".".join(["s" * 63] * 4)[:253], "k" * 253
    files = {Reference("ConfigMap", name, f"{number:02}{key[2:]}"): "" for number in range(MOST_MISSING + 9)}
    counters = WorkerCounters("worker", "q" * 253, lacks=lambda: files)
    found = await asked(body(render(process_families(counters))), OF_A_WORKER)
    assert isinstance(found, list)
    assert [(has["kind"], has["name"], has["key"]) for _, has, _ in found] == [*files][:MOST_MISSING]


async def test_a_queue_of_all_shards_and_kinds_fits_and_one_of_one_shard_may_say_less() -> None:
    """Its answer, which comes in pieces, is bounded by what it can have to say: hundreds are read at a time."""
    shards = range(MOST_SHARDS)
    text = scanner_text(dict.fromkeys(shards, True), (), **BUSY)
    assert len(await asked(body(text))) == MOST_SHARDS * 13 + 1 + len(DURABILITY_RISKS)
    assert await asked(body(text), Question(shards=64)) == TOO_MUCH
    mixes = {shard: {f"{number:064}": 1.5 for number in range(KINDS_SAMPLED)} for shard in shards}
    led, tasks = dict.fromkeys(shards, True), dict.fromkeys(shards, counts(**BUSY))
    answer = body(render(queue_families("orders", led, tasks, NONE, due_kinds=mixes)))
    found = await asked(answer, Question(kinds_seconds=20))
    assert isinstance(found, list)
    assert sum(name == "delayq_due_kind_tasks" for name, _, _ in found) == MOST_SHARDS * KINDS_SAMPLED
    assert await asked(answer, Question()) == TOO_MUCH


# --- Answers that no scanner gives.

NO_EXPOSITION: tuple[bytes, ...] = (
    b"",
    WORDS.encode(),
    b'delayq_tasks{shard="' + WORDS.encode() + b"} 1\n",
    b'delayq_tasks{shard="0"} ' + WORDS.encode() + b"\n",
    b'delayq_tasks{shard="\xff\xfe"} 1\n',
    b'delayq_tasks{shard="' + b"x" * 2_000 + b'"} 1\n',
    bytes(range(256)) * 40,
)
NO_HTTP = (
    b"SSH-2.0-" + WORDS.encode() + b"\r\n",
    OK + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
    OK + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"\r\n",
    OK + b"Content-Length: " + WORDS.encode() + b"\r\n\r\n",
    OK + b"Set-Cookie: " + b"\xff" * 50 + b"\r\n\r\n\x00",
)


@pytest.mark.parametrize("answer", [*map(body, NO_EXPOSITION), *NO_HTTP])
async def test_what_is_no_exposition_is_called_so_and_not_repeated(answer: bytes) -> None:
    assert await asked(answer) == NO_METRICS


@pytest.mark.parametrize("status", [b"302 " + WORDS.encode(), b"404 X", b"500 X"])
async def test_a_status_is_named_by_its_number_and_a_redirect_is_not_followed(status: bytes) -> None:
    """It could lead to what only the operator can reach, such as the node's or the cloud's own addresses."""
    asked_there = []

    async def there(_: asyncio.StreamWriter) -> None:
        asked_there.append(True)

    async with listening(there) as port:
        location = f"Location: http://127.0.0.1:{port}/metrics\r\n\r\n".encode()
        found = await asked(b"HTTP/1.1 " + status + b"\r\n" + location + WORDS.encode())
    assert found == f"orders-scanner-1 answers with HTTP {status[:3].decode()}"
    assert not asked_there


@pytest.mark.parametrize("answer", [b"", OK, body(LINE, b"Content-Length: 9999")])
async def test_what_breaks_off_is_no_reading(answer: bytes) -> None:
    """Half of an answer would be half of the tasks."""
    found = await asked(answer)
    assert isinstance(found, str)
    assert found.endswith(("broke off its answer", "no metrics exposition"))


async def test_a_refused_connection_is_called_so() -> None:
    async with listening(lambda _: asyncio.sleep(0)) as port:
        pass
    async with aclosing(Client(port)) as client:
        assert await client.ask(POD) == "orders-scanner-1 refused the connection"


def endlessly(piece: bytes, pause: float = 0) -> Serve:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(body(b""))
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return serve


async def test_a_pod_that_takes_its_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not extend the timeout."""
    monkeypatch.setattr(exposition, "TIMEOUT_SECONDS", 0.3)
    assert await asked(endlessly(b"#", 0.02)) == "orders-scanner-1 does not answer within 0.3 s"


BOMB = gzip.compress(LINE * 400_000)
LARGE: dict[str, tuple[Serve | bytes, str]] = {
    "one line": (endlessly(b"x" * 65_536), TOO_MUCH),
    "empty lines": (endlessly(b"\n" * 65_536), TOO_MUCH),
    "samples": (endlessly(LINE * 1_000), TOO_MUCH),
    "a bomb": (body(BOMB, b"Content-Encoding: gzip"), NO_METRICS),
}


@pytest.mark.parametrize("which", LARGE)
async def test_an_answer_without_end_is_given_up_and_not_kept_and_a_bomb_is_not_unpacked(which: str) -> None:
    answer, words = LARGE[which]
    tracemalloc.start()
    try:
        assert await asked(answer) == words
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()


async def test_others_get_their_turn_while_the_worst_answer_that_is_allowed_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worst = b"".join(b'delayq_shard_leader{shard="%d",x="%s"} 1\n' % (n, b"\\" * 200) for n in range(3_000))
    turns, seen = 0, []

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def counting(lines: list[str]) -> list[Sample]:
        seen.append(turns)
        return parsed(lines)

    monkeypatch.setattr(exposition, "parsed", counting)
    ticking = asyncio.create_task(tick())
    assert isinstance(await asked(body(worst)), list)
    ticking.cancel()
    assert len(set(seen)) == len(seen) > 10
