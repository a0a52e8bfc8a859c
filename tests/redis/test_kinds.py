"""A worker with an App: each task runs as its kind says, and tasks of unknown kinds wait without harm."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from delayq import App, Client, InvalidDueTime, NewTask
from delayq.connection import Address
from delayq.contract.document import parse_schedule
from delayq.handlers import build
from delayq.handlers.base import HandlerSetupError
from delayq.protocol.commands import Commands
from delayq.protocol.results import State as In
from delayq.worker import unparking
from delayq.worker.worker import Worker

from tests.redis import shop
from tests.redis.recovering import until
from tests.redis.state import NOW
from tests.unit.handlers.receivers import Receiver
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from delayq.guards import Guard
    from delayq.handlers.base import Handler
    from delayq.protocol.results import Counts


@pytest.fixture(autouse=True)
def _new(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(unparking, "KINDS_SECONDS", (0.05, 0.2))
    monkeypatch.setattr(unparking, "EVERY_TASK_SECONDS", 0.05)
    shop.RAN.clear()
    yield
    shop.RAN.clear()


@asynccontextmanager
async def working(
    url: str,
    handler: dict[str, str],
    kinds: dict[str, object] | None = None,
    *,
    made: Handler | None = None,
    guard: Guard[Any] | None = None,
    **spec: object,
) -> AsyncIterator[Worker]:
    """A worker of the queue `orders`; `kinds` are routed to other handlers, `made` takes the handler's place."""
    routed = {"python": handler} | ({"kinds": kinds} if kinds else {})
    queue, address = document(routed, delivery={"maxBlockMilliseconds": 100}, **spec), Address.from_url(url)
    made = made or build(queue, secrets_dir=Path("none"), address=address)
    call = made.call if guard is None else made.under(guard)
    await made.start()
    worker = Worker(
        queue.spec, Commands("orders"), address, call, guard=guard, kinds=made.kinds, batches=made.batches
    )
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


async def test_an_occurrence_of_an_unknown_kind_is_no_run_until_a_worker_has_it(
    client: Client, redis_url: str
) -> None:
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": "nightly"}}
    task = {"kind": "refund", "version": 2, "payload": '{"order": 1}'}
    spec = {"queueRef": {"name": "orders"}, "everySeconds": 3600, "task": task}
    await client.apply_schedule(parse_schedule({**meta, "spec": spec}))
    nominal = await client.run_schedule("nightly")
    async with working(redis_url, APP):
        await has(client, parked=1)
        [schedule] = await client.schedules()
        assert schedule.last_run is None
    async with working(redis_url, NEWER):
        await until(lambda: ("refund", 1) in shop.RAN)
    [schedule] = await client.schedules()
    assert schedule.last_run is not None
    assert schedule.last_run.id == nominal


async def test_a_task_of_an_unknown_kind_waits_and_a_newer_worker_runs_it_uncharged(
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


async def test_arguments_that_do_not_fit_wait_uncharged_and_what_is_no_json_is_a_dead_letter(
    client: Client, redis_url: str
) -> None:
    """Another worker may have another signature. A task that no App can run does not wait for one."""
    await client.schedule({"order": "seven"}, delay_ms=0, kind="refund", task_id="a")
    await client.schedule(b"\x00", delay_ms=0, kind="refund", task_id="b")
    async with working(redis_url, APP) as worker:
        await has(client, dead=1, retrying=1)
        await until(lambda: worker.counters.settled.total() == 2)
    assert worker.counters.kinds["refund"].runs == 1  # of the one that was buried
    [dead], [waiting] = await client.dlq_list(), await client.list(In.RETRYING)
    assert dead.failed.error == "task refund: expected a JSON payload, got application/octet-stream"
    assert (waiting.id, waiting.failed.failures) == ("refund:a", 0)
    why = "task refund: order: Input should be a valid integer"
    assert waiting.failed.error.startswith(
        f"waits for a worker that its arguments fit, for 0 s of 3600 s so far, and for 30 s more: {why}"
    )
    assert [name for name, _ in shop.RAN] == ["began", "ended"]


async def test_an_app_of_its_own_schedules_from_coroutines_and_threads(
    client: Client, redis_url: str
) -> None:
    """As in a web framework: with a document, a client of its own for each way, which it closes itself."""
    web = App(document({"python": {"app": "web.tasks:app"}}), url=redis_url)

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


async def test_a_kind_finds_changes_and_cancels_its_tasks_by_their_ids(
    client: Client, redis_url: str
) -> None:
    due_ms = NOW + 9 * 86_400_000 + 6
    due = datetime.fromtimestamp(NOW // 1000, UTC) + timedelta(days=9, milliseconds=6)
    web = App(document({"python": {"app": "web.tasks:app"}}), url=redis_url)

    @web.task
    async def pay(order: int) -> None: ...

    @web.task
    async def ship(order: int) -> None: ...

    pay.schedule_many_sync([pay.options(delay="1h", id=name).task(1) for name in "abc"])
    async with web:
        await ship.schedule_many([ship.options(delay="2h", id="a").task(2)])
        assert (await ship.schedule_many([ship.task(3)]))[0].id not in ("a", "ship:a")
        assert pay.reschedule_sync("a", due=due).due_ms == due_ms
        assert (await pay.reschedule("b", due=due)).due_ms == due_ms
        for view in (pay.get_sync("a"), await pay.get("b")):
            assert view is not None
            assert (view.kind, view.at_ms, view.body) == ("pay", due_ms, b'{"order":1}')
        with pytest.raises(InvalidDueTime, match="at most one of delay, due"):
            await pay.reschedule("b", due=due, delay="1s")
        moved = await client.reschedule("c", kind="pay", due=due)
        assert (moved.outcome, moved.due_ms) == ("rescheduled", due_ms)
        outcomes = [pay.cancel_sync("a"), await pay.cancel("b"), await pay.cancel("a"), pay.cancel_sync("x")]
        assert outcomes == ["cancelled", "cancelled", "not_found", "not_found"]
        assert (pay.get_sync("a"), await pay.get("b")) == (None, None)
    web.close()
    assert {row.id for row in await client.list(In.SCHEDULED)} > {"pay:c", "ship:a"}


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


async def test_one_queue_serves_an_app_a_service_and_a_command_each_with_its_kinds(
    client: Client, redis_url: str, tmp_path: Path
) -> None:
    """Old workers park what only the routes know, in whichever version. A routed kind of the App has its policy."""
    await client.schedule({"to": 7}, delay_ms=0, kind="push", version=9, task_id="push")
    await client.schedule({"to": 8}, delay_ms=0, kind="thumbnail", task_id="thumbnail")
    await client.schedule({}, delay_ms=0, kind="other", task_id="other")
    async with working(redis_url, APP):
        await has(client, parked=3)
    save = 'cat >> "$OUT"; echo " $DELAYQ_TASK_ID $DELAYQ_KIND $DELAYQ_KIND_VERSION" >> "$OUT"'
    command = {"command": ["sh", "-c", save], "env": {"OUT": str(tmp_path / "out")}}
    async with Receiver.listening() as receiver:
        routes: dict[str, object] = {"push": {"http": {"url": receiver.url}}, "thumbnail": {"exec": command}}
        async with working(redis_url, APP, routes):
            await shop.refund.schedule(3)
            await has(client, parked=1, waiting=0, in_flight=0)
        assert receiver.bodies == [b'{"to":7}']
        receiver.answers += [web.Response(status=503), web.Response(status=503)]
        async with working(redis_url, APP, {"refund": {"http": {"url": receiver.url}}}):
            await shop.refund.schedule(8)
            await has(client, dead=1)
        assert receiver.bodies[1:] == [b'{"order":8}'] * 2
    assert (receiver.headers[0]["Delayq-Kind"], receiver.headers[0]["Delayq-Kind-Version"]) == ("push", "9")
    assert (tmp_path / "out").read_text() == '{"to":8} thumbnail:thumbnail thumbnail 1\n'
    assert ("refund", 3) in shop.RAN
    assert {each.id for each in await client.list(In.PARKED)} == {"other:other"}


async def test_kinds_are_counted_and_logged(
    client: Client, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await shop.refund.options(id="7").schedule(-1)
    await shop.refund.schedule(3)
    await client.schedule({}, delay_ms=0, kind="other", version=2)
    async with working(redis_url, APP) as worker:
        await has(client, parked=1, dead=1, waiting=0, in_flight=0)
        await until(lambda: worker.counters.settled.total() == 4)
    kinds = worker.counters.kinds
    assert {kind: each.settled for kind, each in kinds.items() if each.settled} == {
        "refund": {"retried": 1, "buried": 1, "acked": 1},
        "other": {"parked": 1},
    }
    assert {kind: each.runs for kind, each in kinds.items()} == {
        "refund": 3,
        "remind": 0,
        "push": 0,
        "report": 0,  # those of the App, from the start
        "other": 0,
    }
    assert 0 < kinds["refund"].seconds == pytest.approx(worker.counters.handler.total)
    found = [each for each in caplog.records if each.getMessage() in ("handler_failed", "buried")]
    assert [each.fields["task_id"] for each in found] == ["refund:7"] * 3  # type: ignore[attr-defined]
    assert {(each.fields["kind"], each.fields["version"]) for each in found} == {("refund", 1)}  # type: ignore[attr-defined]


async def test_many_unknown_kinds_have_few_lines_in_the_log(
    client: Client, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = [f"kind-{nth}" for nth in range(60)]
    await client.schedule_many(NewTask({}, delay_ms=0, kind=kind) for kind in kinds)
    async with working(redis_url, APP, worker={"concurrency": 128}):
        await has(client, parked=len(kinds), waiting=0, in_flight=0)
    first, *further = [record.fields for record in caplog.records if record.getMessage() == "kind_unknown"]  # type: ignore[attr-defined]
    assert first["kind"] in kinds
    assert first["tasks"] == 1
    assert first["other_kinds"] == first["other_tasks"] > 5
    assert len(further) < 5


async def test_a_task_without_a_kind_is_logged_as_such(
    client: Client, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await client.schedule({}, delay_ms=0)
    async with working(redis_url, APP):
        await has(client, parked=1, waiting=0, in_flight=0)
    [said] = [record.fields for record in caplog.records if record.getMessage() == "kind_unknown"]  # type: ignore[attr-defined]
    assert said == {"kind": "no kind", "version": 0, "tasks": 1}


async def test_a_callable_runs_tasks_without_a_kind_next_to_routed_ones(
    client: Client, redis_url: str
) -> None:
    """Those without a kind are not counted by kind."""
    await client.schedule({}, delay_ms=0, kind="other", task_id="other")
    await client.schedule({}, delay_ms=0, task_id="plain")
    await client.schedule({}, delay_ms=0, kind="push", task_id="push")
    routes: dict[str, object] = {"push": {"python": {"callable": "tests.redis.test_kinds:anything"}}}
    async with working(redis_url, {"callable": "tests.redis.test_kinds:unkind"}, routes) as worker:
        await has(client, parked=1, waiting=0, in_flight=0)
    assert sorted(shop.RAN) == [("anything", "push"), ("unkind", "")]
    assert set(worker.counters.kinds) == {"push", "other"}


async def unkind(task: object) -> None:
    shop.RAN.append(("unkind", getattr(task, "kind", "")))
