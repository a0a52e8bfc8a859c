"""A worker with an App: each task runs as its kind says, and tasks of unknown kinds wait without harm."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq import App, Client
from delayq.connection import Address
from delayq.handlers import HandlerSetupError, build
from delayq.protocol.commands import Commands
from delayq.protocol.results import State as In
from delayq.worker import unparking
from delayq.worker.worker import Worker

from tests.redis import shop
from tests.redis.recovering import until
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from delayq.protocol.results import Counts


@pytest.fixture(autouse=True)
def _new(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(unparking, "KINDS_SECONDS", (0.05, 0.2))
    monkeypatch.setattr(unparking, "EVERY_TASK_SECONDS", 0.05)
    shop.RAN.clear()
    yield
    shop.RAN.clear()


@asynccontextmanager
async def working(url: str, handler: dict[str, str], **spec: object) -> AsyncIterator[Worker]:
    """A worker of the queue `orders`."""
    queue, address = (
        document({"python": handler}, delivery={"maxBlockMilliseconds": 100}, **spec),
        Address.from_url(url),
    )
    made = build(queue, secrets_dir=Path("none"), address=address)
    await made.start()
    worker = Worker(queue.spec, Commands("orders"), address, made.call, kinds=made.kinds)
    stop, hurry = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(worker.run(stop, hurry))
    try:
        yield worker
    finally:
        stop.set()
        await running
        await made.close()


APP, NEWER, ANY = (
    {"app": "tests.redis.shop:app"},
    {"app": "tests.redis.shop:newer"},
    {"callable": "tests.redis.test_kinds:anything"},
)


async def anything(task: object) -> None:
    shop.RAN.append(("anything", getattr(task, "kind", "")))


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Client]:
    async with Client(redis_url, queue="orders") as client:
        shop.app.bind(client)
        yield client
        shop.app._client = None


@pytest.fixture(autouse=True)
def _empty(orders: object) -> None:
    """The queue `orders` is empty, and the clock moves."""


async def has(client: Client, **counts: int) -> Counts:
    """Wait until the queue has so many tasks in these states."""
    async with asyncio.timeout(20):
        while True:
            found = await client.counts()
            if all(getattr(found, state) == count for state, count in counts.items()):
                return found
            await asyncio.sleep(0.01)


async def test_each_kind_runs_its_function_with_its_policy(client: Client, redis_url: str) -> None:
    await shop.remind.options(id="order-7").schedule(7)
    await shop.refund.schedule(-1)
    await shop.report.schedule("monday")
    await shop.push.schedule("https://shop.example")
    async with working(redis_url, APP):
        await has(client, dead=2, retrying=1)
        assert {each.failed.reason for each in await client.dlq_list()} == {"attempts", "buried"}
    [retried] = await client.list(In.RETRYING)
    assert "task ran longer than the timeout of its kind (1 s)" in retried.failed.error
    began, *ran, ended = shop.RAN
    assert (began, ended) == (("began", ""), ("ended", ""))
    assert ("remind", (7, "state", "remind:order-7", 1)) in ran
    assert ran.count(("refund", -1)) == 2
    assert ran.count(("refund", 7)) == 1


async def test_a_task_that_no_worker_knows_waits_and_a_newer_worker_runs_it_uncharged(
    client: Client, redis_url: str
) -> None:
    """A rolling update: the old worker parks what the new one runs, whichever is first."""
    await client.schedule({"order": 1}, delay_ms=0, kind="refund", version=2, task_id="new")
    await client.schedule({"order": 1}, delay_ms=0, task_id="plain")
    async with working(redis_url, APP):
        counts = await has(client, parked=2)
        assert (counts.due, counts.in_flight, counts.dead) == (0, 0, 0)
        await shop.refund.schedule(3)
        await until(lambda: ("refund", 3) in shop.RAN)
    async with working(redis_url, NEWER):
        await until(lambda: ("refund", 1) in shop.RAN)
        assert {each.id for each in await client.list(In.PARKED)} == {"plain"}
    async with working(redis_url, ANY):
        await until(lambda: ("anything", "") in shop.RAN)
    counts = await client.counts()
    assert (counts.parked, counts.waiting, counts.dead) == (0, 0, 0)
    assert counts.stats.get("retried", 0) == counts.stats.get("buried", 0) == 0


async def test_a_payload_that_does_not_fit_is_a_dead_letter_at_once(client: Client, redis_url: str) -> None:
    await client.schedule({"order": "seven"}, delay_ms=0, kind="refund", task_id="a")
    await client.schedule(b"\x00", delay_ms=0, kind="refund", task_id="b")
    async with working(redis_url, APP):
        await has(client, dead=2)
    errors = {each.id: each.failed.error for each in await client.dlq_list()}
    assert "task refund: order: Input should be a valid integer" in errors["a"]
    assert "task refund: expected a JSON payload, got application/octet-stream" in errors["b"]
    assert [name for name, _ in shop.RAN] == ["began", "ended"]


async def test_an_app_of_its_own_schedules_from_coroutines_and_threads(
    client: Client, redis_url: str
) -> None:
    """As in a web framework: with a document, a client of its own for each way, which it closes itself."""
    web = App(document({"python": APP}), url=redis_url)

    @web.task
    async def pay(order: int) -> None: ...

    with ThreadPoolExecutor(8) as threads:
        stored = [*threads.map(lambda n: pay.options(delay="1d", id=f"t{n}").schedule_sync(n), range(50))]
    async with web:
        stored.append(await pay.options(due=datetime.now(UTC) + timedelta(days=9)).schedule(8))
        tasks = (pay.options(delay=timedelta(days=1)).task(n) for n in range(5))
        stored += await web.client.schedule_many(tasks)
    web.close()
    assert len({each.id for each in stored}) == 56
    assert stored[0].id == "pay:t0"
    found = await client.get("pay:t7")
    assert found is not None
    assert (found.kind, found.kind_version, found.body) == ("pay", 1, b'{"order":7}')
    assert (await client.counts()).waiting == 56
    with pytest.raises(RuntimeError, match="not open"):
        await pay.schedule(1)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("tests.redis.shop:nothing", 'has no attribute "nothing"'),
        ("tests.redis.shop:refund", "is no App, it is of type TaskKind"),
        ("tests.redis.shop_of_nobody:app", "no module"),
        ("tests.redis.test_kinds:EMPTY", "has no tasks: define them with @app.task"),
    ],
)
def test_what_is_no_app_is_refused_before_anything_is_claimed(path: str, why: str) -> None:
    with pytest.raises(HandlerSetupError, match=r"^spec\.handler\.python\.app: ") as caught:
        build(document({"python": {"app": path}}), secrets_dir=Path("none"))
    assert why in str(caught.value)


EMPTY = App()
