"""From the document to the handler that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq import App, Context, contract
from delayq.errors import InvalidDocument
from delayq.guards.base import Hold
from delayq.guards.coverage import EVERY_TASK, Coverage, coverage
from delayq.handlers import build
from delayq.handlers.base import HandlerSetupError
from delayq.handlers.exec import ExecHandler
from delayq.handlers.http import HttpHandler
from delayq.handlers.routing import RoutingHandler

from tests.unit.handlers.support import NO_SECRETS_DIR, a_task, document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from delayq.contract import DelayQueue
    from delayq.guards import Guard
    from delayq.handlers.base import Handler
    from delayq.protocol.envelope import Task

ROOT = Path(__file__).parents[3]
URL = {"url": "http://127.0.0.1:1/"}


def built(handler: dict[str, object], **more: object) -> Handler:
    return build(document(handler, **more), secrets_dir=Path(NO_SECRETS_DIR))


def test_an_http_call_never_takes_longer_than_a_handler_or_the_app_allows() -> None:
    routes: dict[str, object] = {
        "push": {"http": URL},
        "short": {"http": URL | {"timeoutSeconds": 5}},
        "long": {"http": URL | {"timeoutSeconds": 50}},
        "slow": {"http": URL},  # the App allows 2 m
    }
    handler = {"python": {"app": "tests.unit.handlers.test_build:app"}}
    made = with_kinds(handler, routes, delivery={"handlerTimeoutSeconds": 30})
    seconds = [each._timeout_seconds for each in made.handlers[1:] if isinstance(each, HttpHandler)]
    assert seconds == [30, 5, 30, 120]


@pytest.mark.parametrize(
    "module",
    ["delayq.handlers.python", "delayq.handlers.exec", "delayq.handlers", "delayq.handlers.signature"],
)
def test_only_http_handlers_need_aiohttp(module: str) -> None:
    """Workers of the other kinds start without it, and so do receivers that verify signatures."""
    program = f"import sys, {module}; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


# --- Single kinds.

CALLABLE = "spec.handler.python.callable"
SQL = {"guard": {"sqlUnique": {"databaseSecretRef": {"name": "db"}}}}


def with_kinds(handler: Mapping[str, object], kinds: Mapping[str, object], **more: object) -> RoutingHandler:
    made = built({**handler, "kinds": kinds}, **more)
    assert isinstance(made, RoutingHandler)
    return made


async def joining(task: object, connection: object) -> None:
    """Takes part in the transaction of a SQL guard."""


async def failing(task: Task) -> None:
    raise ValueError(task.kind)


bank = App()


@bank.task(guard=True)
async def pay(context: Context) -> None:
    """Takes the guard's connection."""
    assert context.connection == "a connection"


@bank.task
async def note() -> None:
    """Writes elsewhere."""


@bank.task
async def mail() -> None:
    """Needs no guard."""


pushing = App()


@pushing.task
async def push() -> None:
    """Sent by a service, if the route is spelled right."""


def test_the_default_handler_decides_which_other_kinds_are_known() -> None:
    python = {"python": {"callable": "tests.unit.handlers.test_build:failing"}}
    delivery = document({"http": URL}).spec.delivery
    found = with_kinds(python, {"push": {"http": URL}}).kinds
    assert found == {("", 0): delivery, ("push", None): delivery}
    assert with_kinds({"http": URL}, {"push": python}).kinds is None
    app = with_kinds({"python": {"app": "tests.redis.shop:app"}}, {"refund": {"http": URL}}).kinds
    assert app is not None
    assert app["refund", 1].max_attempts == 2
    assert app["refund", None] == delivery
    assert ("report", 1) in app


def test_commands_of_one_worker_know_of_each_other() -> None:
    """Otherwise process 1 of a container would reap the commands of the other handler, and lose their exit codes."""
    made = with_kinds({"exec": {"command": ["true"]}}, {"push": {"exec": {"command": ["false"]}}})
    first, second = made.handlers
    assert isinstance(first, ExecHandler)
    assert isinstance(second, ExecHandler)
    assert first._groups is second._groups


class Noted:
    """Notes under which variant of a guard each task runs; what handlers do is tested with real databases."""

    takes_batches, name = True, "noted"

    def __init__(self, runs: list[tuple[str, str]], variant: str = "shared") -> None:
        self.runs, self.variant = runs, variant

    def for_effects_elsewhere(self) -> Noted:
        return Noted(self.runs, "elsewhere")

    def joined(self, _function: str, *, coroutine: bool) -> None:
        assert coroutine

    @asynccontextmanager
    async def __call__(self, task: Task) -> AsyncIterator[Hold]:
        self.runs.append((task.kind, self.variant))
        yield Hold(task, "a connection")


async def ran(made: Handler, coverage: Coverage, *kinds: str) -> list[tuple[str, str]]:
    """Run a task of each kind; under which variant of the guard each ran that was guarded."""
    runs: list[tuple[str, str]] = []
    call = made.under(cast("Guard[Any]", Noted(runs)), coverage)
    for kind in kinds:
        await call(replace(a_task(), kind=kind, kind_version=1, body=b"{}"))
    return runs


async def test_handlers_with_and_without_the_connection_stand_side_by_side_under_a_sql_guard() -> None:
    taking: dict[str, object] = {"python": {"callable": "tests.unit.handlers.test_build:joining"}}
    other: dict[str, object] = {"exec": {"command": ["true"]}}
    for first, second in ((taking, other), (other, taking)):
        made = with_kinds(first, {"push": second}, **SQL)
        await made.start()
        variants = {"": first is taking, "push": second is taking}
        assert await ran(made, EVERY_TASK, "", "push") == [
            (kind, "shared" if shares else "elsewhere") for kind, shares in variants.items()
        ]
        await made.close()


async def test_a_guard_applies_to_the_kinds_that_the_document_names() -> None:
    made = with_kinds({"exec": {"command": ["true"]}}, {"push": {"exec": {"command": ["true"]}}})
    await made.start()
    assert await ran(made, Coverage(frozenset({"push"})), "", "push", "other") == [("push", "elsewhere")]
    assert await ran(made, Coverage(frozenset({"other"})), "", "push", "other") == [("other", "elsewhere")]
    await made.close()


@pytest.mark.parametrize(
    ("covered", "default", "routed"),
    [
        ({}, "", ""),
        ({"appliesTo": "NamedKinds", "kinds": ["push"]}, CALLABLE, ""),
        (
            {"appliesTo": "NamedKinds", "kinds": ["other"]},
            CALLABLE,
            f'spec.handler.kinds["push"].{CALLABLE.removeprefix("spec.handler.")}',
        ),
    ],
)
def test_a_function_that_needs_the_connection_is_refused_where_the_guard_does_not_apply(
    covered: dict[str, Any], default: str, routed: str
) -> None:
    """Otherwise each of its tasks would fail for the missing argument until it is a dead letter."""
    taking = {"python": {"callable": "tests.unit.handlers.test_build:joining"}}
    guard: dict[str, Any] = {"guard": {**SQL["guard"], **covered}}
    kinds = {"push": {"http": URL}, "other": {"http": URL}}
    assert refusal_of(document({**taking, "kinds": kinds}, **guard)) == default
    assert refusal_of(document({"http": URL, "kinds": kinds | {"push": taking}}, **guard)) == routed


def refusal_of(queue: DelayQueue) -> str:
    """The field for which a worker does not start; empty if it does."""
    try:
        build(queue, secrets_dir=Path(NO_SECRETS_DIR)).coverage(queue.spec.guard)
    except HandlerSetupError as error:
        return (
            error.field if "takes a connection, but spec.guard does not cover" in str(error) else str(error)
        )
    return ""


async def test_a_guard_applies_to_the_kinds_of_an_app_that_ask_for_it() -> None:
    made = built({"python": {"app": "tests.unit.handlers.test_build:bank"}}, **SQL)
    assert made.asking == {"pay"}
    covered = coverage(
        contract.Guard(applies_to="NamedKinds", kinds=("note",)),
        asking=made.asking,
        known=("pay", "note", "mail"),
    )
    assert await ran(made, covered, "pay", "note", "mail") == [("pay", "shared"), ("note", "elsewhere")]
    every = [("pay", "shared"), ("note", "elsewhere"), ("mail", "elsewhere")]
    assert await ran(made, EVERY_TASK, "pay", "note", "mail") == every


@pytest.mark.parametrize(
    ("named", "known", "why"),
    [
        (
            ("refnd",),
            ("refund", "push"),
            r"spec.guard.kinds\[0\]: the handler has no kind refnd; did you mean refund\?",
        ),
        (("push", "x"), ("push", ""), r"spec.guard.kinds\[1\]: the handler has no kind x; it runs push$"),
    ],
)
def test_a_kind_to_guard_that_no_handler_runs_is_refused(
    named: tuple[str, ...], known: tuple[str, ...], why: str
) -> None:
    with pytest.raises(InvalidDocument, match=why):
        coverage(contract.Guard(applies_to="NamedKinds", kinds=named), asking=(), known=known)


def test_a_kind_that_asks_for_a_guard_needs_one() -> None:
    with pytest.raises(
        InvalidDocument, match=r"^spec.guard: required by kind pay, which has guard=True; but missing"
    ):
        coverage(None, asking=("pay",), known=("pay",))
    assert coverage(contract.Guard(), asking=("pay",), known=("pay",)) is EVERY_TASK
    assert "" not in coverage(contract.Guard(applies_to="NamedKinds"), asking=("pay",), known=None)


def test_a_route_that_may_be_misspelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = {"python": {"app": "tests.unit.handlers.test_build:pushing"}}
    with_kinds(app, {"psuh": {"http": URL}, "other": {"http": URL}})
    with_kinds(app, {"push": {"http": URL}})
    assert [record.fields for record in caplog.records] == [{"kind": "psuh", "similar": "push"}]  # type: ignore[attr-defined]


async def test_every_handler_runs_in_the_guards_block_and_all_are_closed_when_one_cannot_start() -> None:
    failing = {"python": {"callable": "tests.unit.handlers.test_build:failing"}}
    runs: list[tuple[str, str]] = []
    made = with_kinds(failing, {"push": failing})
    call = made.under(cast("Guard[Any]", Noted(runs)))
    for kind in ("push", ""):
        with pytest.raises(ValueError, match=f"^{kind}$"):
            await call(replace(a_task(), kind=kind))
    assert runs == [("push", "elsewhere"), ("", "elsewhere")]

    made = with_kinds({"exec": {"command": ["true"]}}, {"push": {"exec": {"command": ["no-such-program"]}}})
    with pytest.raises(
        HandlerSetupError, match=r'^spec.handler.kinds\["push"\].exec.command: "no-such-program" is not'
    ):
        await made.start()
    [first, _] = made.handlers
    assert isinstance(first, ExecHandler)
    assert first._groups.warden is None


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ({"python": {"callable": "no_such:thing"}}, 'spec.handler.kinds["push"].python.callable: '),
        ({"http": {"url": "http://127.0.0.1:99999/"}}, 'spec.handler.kinds["push"].http.url: '),
    ],
)
def test_a_route_that_cannot_run_is_named(route: dict[str, object], problem: str) -> None:
    with pytest.raises(HandlerSetupError, match=f"^{re.escape(problem)}"):
        with_kinds({"exec": {"command": ["true"]}}, {"push": route})


app = App()


@app.task(timeout="2m")
async def slow() -> None: ...
