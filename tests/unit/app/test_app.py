"""What can be a kind of task, and what its arguments become on their way through Redis."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator  # noqa: TC003 -- annotations that are read
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, assert_type
from uuid import UUID, uuid4

import pytest
from delayq import App, BatchContext, Context, SyncClient
from delayq.app import arguments
from delayq.contract import to_document
from delayq.errors import InvalidDocument, InvalidDueTime, InvalidTask
from delayq.handlers.app import AppHandler
from delayq.handlers.base import HandlerSetupError
from pydantic import BaseModel, Field

from tests.unit.handlers.support import a_task, document

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.app import TaskKind

QUEUE = document({"python": {"app": "shop:app"}})
MAIL = replace(QUEUE, metadata=replace(QUEUE.metadata, name="mail"))
OTHER = replace(QUEUE, spec=replace(QUEUE.spec, queue_name="other"))
app = App()
UNTYPED: Any = app
DAY, AT = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@app.task(max_attempts=8, timeout="2m", retry_delays=["30s", timedelta(minutes=1), "90s"])
async def cancel_unpaid(order: int, *, reason: str = "unpaid") -> None:
    """Cancel an order."""


@app.task(name="remind.by-mail", version=3)
def remind(ctx: Context, to: str | None, day: date, amount: Decimal, *, raw: bytes = b"\xff") -> str:
    return f"{ctx.state} {to} {day} {amount} {raw!r}"


def payload(kind: TaskKind[..., Any], *args: object, **kwargs: object) -> Any:  # noqa: ANN401
    return json.loads(kind.encode(args, kwargs))


def test_a_kind_has_the_name_of_its_function_and_its_own_policy() -> None:
    assert [(kind.name, kind.version) for kind in app] == [("cancel_unpaid", 1), ("remind.by-mail", 3)]
    assert app.find("cancel_unpaid", 1) is cancel_unpaid
    assert app.find("cancel_unpaid", 2) is None
    policy = cancel_unpaid.policy
    assert (policy.max_attempts, policy.timeout_seconds, policy.delays_seconds) == (8, 120, (30, 60, 90))
    assert cancel_unpaid.__doc__ == "Cancel an order."


async def test_a_context_has_the_types_of_its_state_and_connection() -> None:
    """Of the state alone, or of both; what has no type is `object`."""
    shop = App()
    shown = list[str]()

    @shop.task
    async def both(context: Context[str, bytes], order: int) -> None:
        assert_type((context.state, context.connection), tuple[str, bytes])
        shown.append(context.state.upper() + str(order))

    @shop.task
    def state(context: Context[str], order: int) -> None:
        assert_type((context.state, context.connection), tuple[str, object])
        shown.append(context.state.upper() + str(order))

    @shop.task(batch=2)
    async def batch(context: BatchContext[str], orders: list[int]) -> None:
        assert_type((context.state, context.connection), tuple[str, object])
        shown.append(context.state.upper() + str(orders))

    handler = AppHandler(shop, QUEUE)
    handler._state = "shop"
    for name, body in (("both", b'{"order": 1}'), ("state", b'{"order": 2}')):
        await handler.call(replace(a_task(body), kind=name, kind_version=1))
    await handler.batches["batch", 1].call([replace(a_task(b"3"), kind="batch", kind_version=1)])
    await handler.close()
    assert shown == ["SHOP1", "SHOP2", "SHOP[3]"]
    await both(Context(a_task(), "shop"), 1)
    assert payload(both, 7) == payload(state, order=7) == {"order": 7}


def test_a_call_is_a_plain_call() -> None:
    """A unit test of a function needs no Redis, no worker and no App that is bound."""
    context = Context(task=None, state="shop")  # type: ignore[arg-type]
    assert remind(context, None, DAY, Decimal("1.50")) == "shop None 2026-01-02 1.50 b'\\xff'"


def test_arguments_travel_as_a_json_object_by_name_and_come_back_as_what_they_were() -> None:
    assert payload(cancel_unpaid, 7) == {"order": 7}
    assert payload(cancel_unpaid, order=7, reason="asked") == {"order": 7, "reason": "asked"}
    text = remind.encode((None, DAY, Decimal("1.50")), {"raw": b"\x00\xfe"})
    assert json.loads(text) == {"to": None, "day": "2026-01-02", "amount": "1.50", "raw": "AP4="}
    back = remind.codec.decode(text)
    assert back == {"to": None, "day": DAY, "amount": Decimal("1.50"), "raw": b"\x00\xfe"}
    assert cancel_unpaid.codec.decode(b'{"order": 7}') == {"order": 7, "reason": "unpaid"}


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "missing a required argument: 'order'"),
        ((7, "asked"), {}, "too many positional arguments"),
        (
            (7,),
            {"oder": 8},
            "unexpected keyword argument 'oder'; it takes (order: int, *, reason: str = 'unpaid')",
        ),
        (("seven",), {}, "order: Input should be a valid integer"),
        ((7,), {"reason": None}, "reason: Input should be a valid string"),
        ((7,), {"reason": "\ud800"}, "surrogates"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_when_scheduled(
    args: tuple[object, ...], kwargs: dict[str, object], why: str
) -> None:
    with pytest.raises(InvalidTask, match="task cancel_unpaid: ") as caught:
        cancel_unpaid.encode(args, kwargs)
    assert why in str(caught.value)
    assert "seven" not in str(caught.value), "a value may be secret"


@pytest.mark.parametrize(
    "body", [b"[]", b"7", b"{", b"\xff", b'{"order": "x"}', b'{"order": 1, "more": 2}', b"{}"]
)
def test_a_payload_that_does_not_fit_is_reported_when_it_runs(body: bytes) -> None:
    with pytest.raises(arguments.InvalidArguments):
        cancel_unpaid.codec.decode(body)


def test_a_missing_and_an_unknown_argument_have_the_same_names_with_pydantic_and_without() -> None:
    with pytest.raises(arguments.InvalidArguments) as refused:
        cancel_unpaid.codec.decode(b'{"ordr": 1}')
    assert str(refused.value) == "order: missing argument; ordr: unknown argument"


class Aliased(BaseModel):
    customer: int = Field(alias="customerId")


def test_a_model_whose_alias_cannot_be_read_back_is_refused_with_a_hint() -> None:
    kind = App().task(one(Aliased))
    with pytest.raises(InvalidTask, match=r"value.*customerId: Field required.*populate_by_name=True"):
        kind.encode((Aliased(customerId=7),), {})

    class Named(Aliased, populate_by_name=True): ...

    fits = App().task(one(Named))
    assert fits.codec.decode(fits.encode((Named(customerId=7),), {}))["value"] == Named(customerId=7)


def one(annotation: object, default: object = ...) -> Callable[..., None]:
    def function(value: Any) -> None: ...  # noqa: ANN401

    function.__annotations__["value"] = annotation
    if default is not ...:
        function.__defaults__ = (default,)
    return function


def shown(value: object) -> str:
    """The same in each process: without addresses, and with sets in order."""
    return type(value).__name__ if type(value) in (object, set) else str(value)


SAME = [
    (int | str, 7), (int | str, "7"), (date, DAY), (datetime, AT), (timedelta, timedelta(seconds=1)),
    (Decimal, Decimal("0.1")),
    (bytes, b"\x00\xff"), (int, 2**64), (float, 0.1), (list[date], [DAY]), (dict[str, Decimal], {"a": Decimal(1)}),
    (tuple[int, str], (1, "a")), (set[int], {1, 2}), (Literal["a", "b"], "b"), (Any, [1, None]), (date | None, None),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value"), SAME, ids=shown)
def test_what_json_has_no_type_for_comes_back_the_same(annotation: object, value: object) -> None:
    kind = App().task(one(annotation))
    back = kind.codec.decode(kind.encode((value,), {}))["value"]
    assert (back, type(back)) == (value, type(value))
    App().task(one(annotation, value))  # also as a default


CHANGED = [
    (float, float("nan")), (float, float("inf")), (Any, (1, 2)), (Any, {1: 2}), (Any, object()), (Any, DAY),
    (date | str, "2026-01-02"), (Decimal, Decimal("NaN")),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value"), CHANGED, ids=shown)
def test_what_would_not_be_the_same_when_it_runs_is_refused_when_scheduled_or_defined(
    annotation: object, value: object
) -> None:
    kind = App().task(one(annotation))
    with pytest.raises(InvalidTask, match="task function: "):
        kind.encode((value,), {})
    with pytest.raises(TypeError, match="the default of value does not fit its annotation"):
        App().task(one(annotation, value))


def positional(order: int, /) -> None: ...
def variable(*orders: int) -> None: ...
def named(**orders: int) -> None: ...
def late(order: int, ctx: Context) -> None: ...
def unknown(order: "Unheard") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037
def odd(order: Callable[[], None]) -> None: ...
def wrong(order: int = "seven") -> None: ...  # type: ignore[assignment]
def by_name(*, ctx: Context, order: int) -> None: ...
def generator(order: int) -> Iterator[int]:
    yield order


async def agenerator(order: int) -> AsyncIterator[int]:
    yield order


class Shop:
    def method(self, order: int) -> None: ...
    @classmethod
    def create(cls, order: int) -> None: ...
    def generate(self, order: int) -> Iterator[int]:
        yield order


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (positional, "order, positional-only,"),
        (variable, r"parameter \*orders"),
        (named, r"parameter \*\*orders"),
        (late, "a Context has to be the first parameter"),
        (unknown, "Unheard"),
        (odd, "order|JSON|Callable"),
        (wrong, "the default of order does not fit"),
        (by_name, "ctx: a Context has to be the first parameter, and positional"),
        (generator, "generator function"),
        (agenerator, "generator function"),
        (Shop().generate, "generator function"),
        (Shop.method, "it is a method, and a task has no self"),
        (Shop.create.__func__, "a task has no cls"),  # type: ignore[attr-defined]
    ],
)
def test_a_function_that_cannot_be_a_kind_is_refused_when_defined(
    function: Callable[..., None], why: str
) -> None:
    with pytest.raises(TypeError, match=why) as caught:
        App().task(function)
    assert str(caught.value).startswith(f"task {function.__name__}: ")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": ""}, "task name: expected 1 to 64 letters"),
        ({"name": "a b"}, "task name"),
        ({"version": 0}, "version: expected 1 to 65535, got 0"),
        ({"version": True}, "version"),
        ({"max_attempts": 0}, "max_attempts: expected a whole number, 1 to 10000, got 0"),
        ({"timeout": "604801s"}, "timeout: expected at most 604800 s, got '604801s'"),
        ({"timeout": "2 minutes"}, "timeout: expected a duration like"),
        ({"timeout": timedelta(seconds=-1)}, "timeout: expected 0 or more"),
        (
            {"timeout": 30},
            'timeout: expected a duration like "30m", or a timedelta, got 30; did you mean "30s"',
        ),
        ({"retry_delays": []}, "retry_delays: expected 1 to 100, got 0"),
        ({"deadline": "0s"}, "deadline: expected more than 0 and at most ten years, got '0s'"),
        ({"retry_delays": "10s"}, "retry_delays: expected a list of durations, got '10s'"),
    ],
)
def test_options_that_cannot_be_are_refused_when_defined(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        App().task(**options)(one(int))


def test_the_bounds_of_a_policy_are_those_of_the_document() -> None:
    shop = App()
    shop.task(max_attempts=10_000, timeout="7d", retry_delays=["365d"] * 100)(one(int))
    [kind] = shop
    policy = kind.policy
    delivery = {
        "maxAttempts": policy.max_attempts,
        "handlerTimeoutSeconds": policy.timeout_seconds,
        "backoff": {"delaysSeconds": list(policy.delays_seconds or ())},
    }
    document({"python": {"app": "shop:app"}}, delivery=delivery)


def test_a_kind_is_defined_once_for_each_version() -> None:
    shop = App()
    shop.task(name="a")(one(int))
    shop.task(name="a", version=2)(one(str))
    with pytest.raises(ValueError, match="task a version 2 is defined already: <task a version 2: "):
        shop.task(name="a", version=2)(one(str))
    with pytest.raises(TypeError, match="is a task already"):
        shop.task(cancel_unpaid)
    with pytest.raises(TypeError, match=r"@app\.task takes its name as name='send'"):
        shop.task("send")  # type: ignore[call-overload]


CELL = "@app.task(version=2)\ndef report(region: {}) -> None: ..."


def test_a_notebook_cell_that_runs_again_replaces_its_kind() -> None:
    cells: dict[str, Any] = {"__name__": "__main__", "app": (shop := App())}
    exec(CELL.format("str"), cells)  # noqa: S102  as a notebook does
    exec(CELL.format("int"), cells)  # noqa: S102
    assert list(shop) == [cells["report"]]
    assert cells["report"].encode((7,), {}) == b'{"region":7}'
    with pytest.raises(ValueError, match=r"task report version 2 is defined already: .*__main__"):
        exec(CELL.format("int"), cells | {"__name__": "elsewhere"})  # noqa: S102
    with pytest.raises(ValueError, match="is defined already"):
        shop.task(name="report", version=2)(one(int))
    with pytest.raises(TypeError, match="is a task already"):
        shop.task(version=2)(cells["report"])


def test_two_lambdas_of_one_name_are_different_functions() -> None:
    shop = App()
    shop.task(name="a")(lambda: None)
    with pytest.raises(ValueError, match="is defined already"):
        shop.task(name="a")(lambda: None)


def test_the_deadline_of_the_call_comes_before_that_of_the_kind() -> None:
    kind = App().task(deadline="2h")(one(int))
    assert [call.task(1).deadline_ms for call in (kind.options(), kind.options(deadline="3s"))] == [
        7_200_000,
        3000,
    ]
    assert App().task(one(int)).options().task(1).deadline_ms is None


def test_debounce_says_what_happens_if_the_task_exists_and_schedule_many_for_all_of_its_tasks() -> None:
    kind = App().task(one(int))
    call = kind.options(id="a", delay="1m", debounce="10m", tags=["x"])
    task = call.task(1)
    assert (call.options.if_exists, task.debounce_ms, task.tags) == ("debounce", 600_000, ["x"])
    keeping = kind.options(id="a", debounce="10m", if_exists="keep")
    assert keeping.options.if_exists == "keep"  # refused by the client
    with pytest.raises(InvalidTask, match=r"if_exists: schedule_many\(tasks, if_exists=…\) says it"):
        keeping.task(1)


def test_options_are_checked_when_scheduled() -> None:
    task = cancel_unpaid.options(delay="1m30s", id="order-7", headers={"a": "b"}).task(7)
    assert (task.delay_ms, task.due_ms, task.task_id) == (90_000, None, "order-7")
    assert (task.kind, task.version, task.headers) == ("cancel_unpaid", 1, {"a": "b"})
    assert cancel_unpaid.options(due=AT).task(7).due_ms == AT.timestamp() * 1000
    assert (
        cancel_unpaid.options(due=AT + timedelta(microseconds=1)).task(7).due_ms == AT.timestamp() * 1000 + 1
    )
    wrong: list[dict[str, Any]] = [
        {"delay": "soon"},
        {"delay": timedelta(seconds=-1)},
        {"delay": 1},
        {"delay": 1.5},
        {"due": AT.replace(tzinfo=None)},
    ]
    for options in [*wrong, {"delay": "1s", "due": AT}, {"due": "2026-01-02"}]:
        with pytest.raises(InvalidDueTime):
            cancel_unpaid.options(**options).task(7)


def test_bound_methods_and_parameters_named_self_are_allowed() -> None:
    shop = App()
    assert payload(shop.task(Shop().method), order=7) == {"order": 7}
    assert payload(shop.task(Shop.create), order=7) == {"order": 7}

    @shop.task
    def plain(self: int) -> int:
        return self

    assert plain(self=7) == 7
    assert plain.options(id="a").task(self=7).payload == b'{"self":7}'


class Line(BaseModel):
    id: UUID = Field(default_factory=uuid4)
    count: int = 1


def test_defaults_are_stored_inside_a_model_and_not_for_arguments() -> None:
    """A default_factory would give another value when the task runs."""

    @App().task
    def ship(line: Line, *, fast: bool = False) -> None: ...

    line = Line()
    text = ship.encode((line,), {})
    assert json.loads(text) == {"line": {"id": str(line.id), "count": 1}}
    assert ship.codec.decode(text) == {"line": line, "fast": False}


@pytest.mark.parametrize("validates", [True, False])
def test_a_run_that_changes_a_default_changes_it_for_no_other_run(
    monkeypatch: pytest.MonkeyPatch, *, validates: bool
) -> None:
    monkeypatch.setattr(arguments, "VALIDATES", validates)
    empty: list[list[int]] = []

    def fill(order: int, items: list[list[int]] = empty, nested: dict[str, list[int]] = {"a": []}) -> None:  # noqa: B006
        items.append([order])
        nested["a"].append(order)

    kind = App().task(fill)
    for order in (1, 2):
        given = kind.codec.decode(b'{"order": %d}' % order)
        assert given == {"order": order, "items": [], "nested": {"a": []}}
        fill(**given)
    assert empty == []
    assert kind.codec.decode(b'{"order": 3, "items": [[7]]}')["items"] == [[7]]


def test_pydantic_1_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("pydantic")
    old.VERSION = "1.10.26"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pydantic", old)
    assert runpy.run_path(arguments.__file__)["VALIDATES"] is False


async def test_an_app_without_a_queue_says_what_to_do_and_opens_once_it_has_one() -> None:
    shop = App()
    kind = shop.task(one(int))
    with pytest.raises(RuntimeError, match=r"not open: use it inside `async with app`, or bind\(\)"):
        await kind.schedule(7)
    with pytest.raises(RuntimeError, match=r"no queue: App\(document\), or bind\(\) a client"):
        kind.schedule_sync(7)
    with pytest.raises(RuntimeError, match="no queue"):
        await shop.__aenter__()
    shop.bind_document(QUEUE)
    async with shop:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        shop.client  # noqa: B018


def test_an_app_opens_again_in_another_event_loop_after_a_block_that_was_not_left() -> None:
    """As in a child that was forked inside `async with app`: Client.open treats both alike."""
    shop = App(QUEUE)

    async def enter() -> None:
        await shop.__aenter__()
        assert shop.client._connection is not None

    asyncio.run(enter())
    asyncio.run(enter())


async def test_an_app_is_bound_to_another_queue_when_no_client_of_the_earlier_one_is_open() -> None:
    shop, mine = App(QUEUE), SyncClient(queue="mine")
    sync = shop.sync_client
    async with shop:
        for other in (OTHER, None):
            with pytest.raises(RuntimeError, match="leave `async with app` before"):
                shop.bind_document(other)
        shop.bind_document(QUEUE)
    assert sync._open is not None
    shop.bind_document(OTHER)
    assert sync._open is None
    shop.bind(mine)
    with shop.bound_to(QUEUE):
        inside = shop.sync_client
        assert inside.queue == "orders"
    assert inside._open is None
    assert shop.sync_client is mine
    async with shop:
        assert shop.client.queue == "other"


class Later:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def forgotten() -> None:
    """A lifespan without its decorator."""


@pytest.mark.parametrize(
    ("lifespan", "what"), [(Later, "Later"), (forgotten, "coroutine"), (lambda: None, "NoneType")]
)
async def test_a_lifespan_that_cannot_be_entered_is_named(lifespan: Any, what: str) -> None:  # noqa: ANN401
    """A decorator may hide that it returns an awaitable. Nothing stays open, or is left unawaited."""
    shop = App(lifespan=lifespan)
    shop.task(one(int))
    handler = AppHandler(shop, QUEUE)
    with pytest.raises(
        HandlerSetupError,
        match=rf"lifespan returned a {what}: expected an asynchronous context manager\. Write",
    ):
        await handler.start()
    shop.bind_document(None)  # refused while the App is open


@pytest.mark.parametrize("fails", ["at the start", "at the end"])
async def test_a_lifespan_that_fails_leaves_the_app_closed(fails: str) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if fails == "at the start":
            raise OSError(fails)
        yield
        raise OSError(fails)

    shop = App(lifespan=lifespan)
    shop.task(one(int))
    handler = AppHandler(shop, QUEUE)
    sync = shop.sync_client

    async def work() -> None:
        await handler.start()
        await handler.close()

    with pytest.raises(OSError, match=fails):
        await work()
    assert sync._open is None
    shop.bind_document(None)  # refused while the App is open


class TestWithoutPydantic:
    """The extra delayq[pydantic] is optional: JSON values travel as they are."""

    @pytest.fixture(autouse=True)
    def _absent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(arguments, "VALIDATES", False)

    def test_json_values_and_defaults_come_back(self) -> None:
        kind = App().task(one(dict[str, list[int | None]] | Literal["none"], "none"))
        assert kind.codec.decode(kind.encode(({"a": [1, None]},), {})) == {"value": {"a": [1, None]}}
        assert kind.codec.decode(kind.encode((), {})) == {"value": "none"}

    @pytest.mark.parametrize("annotation", [date, bytes, Decimal, list[date], set[int], tuple[int, int]])
    def test_another_annotation_is_refused_when_defined(self, annotation: object) -> None:
        with pytest.raises(TypeError, match=r"no JSON type; install delayq\[pydantic\]"):
            App().task(one(annotation))

    @pytest.mark.parametrize("value", [(1, 2), {1: 2}, DAY, float("nan"), b"a", "\ud800"], ids=ascii)
    def test_a_value_that_is_no_json_is_refused(self, value: object) -> None:
        kind = App().task(one(Any))
        with pytest.raises(InvalidTask):
            kind.encode((value,), {})
        with pytest.raises(TypeError, match="the default of value"):
            App().task(one(Any, value))

    @pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b"{}", b'{"value": 1, "more": 2}'])
    def test_a_payload_that_does_not_fit_is_reported_when_it_runs(self, body: bytes) -> None:
        with pytest.raises(arguments.InvalidArguments):
            App().task(one(int)).codec.decode(body)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda: UNTYPED.task(max_attempt=3),
            "@app.task: unknown option max_attempt, did you mean max_attempts?",
        ),
        (
            lambda: UNTYPED.find("remind.by-mail", 3).options(delya="1m"),
            "task remind.by-mail: options: unknown option delya, did you mean delay?",
        ),
        (
            lambda: UNTYPED.find("remind.by-mail", 3).options(colour=1),
            "unknown option colour; expected one of delay, due, id, if_exists",
        ),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        wrong()


async def test_an_app_chooses_its_queue_in_a_file_of_several(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("\n---\n".join(json.dumps(to_document(each)) for each in (QUEUE, MAIL)))
    async with App(file, queue="mail", url="redis://localhost:1") as opened:
        assert opened.client.queue == "mail"
    with pytest.raises(InvalidDocument, match=r"choose a queue by its name: orders, mail$"):
        await App(file).__aenter__()
    with pytest.raises(InvalidDocument, match=r"expected a DelayQueue of queue post, found orders, mail$"):
        await App(file, queue="post").__aenter__()
    with pytest.raises(InvalidDocument, match=r"expected the document of queue post, got that of orders$"):
        await App(QUEUE, queue="post").__aenter__()
