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
from delayq import App
from delayq.handlers import HandlerSetupError, build
from delayq.handlers.exec import ExecHandler
from delayq.handlers.http import HttpHandler
from delayq.handlers.routing import RoutingHandler

from tests.unit.handlers.support import NO_SECRETS_DIR, a_task, document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from delayq.guards import Guard
    from delayq.handlers import Handler
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
    "module", ["delayq.handlers.python", "delayq.handlers.exec", "delayq.handlers.signature"]
)
def test_only_http_handlers_need_aiohttp(module: str) -> None:
    """Workers of the other kinds start without it, and so do receivers that verify signatures."""
    program = f"import sys, {module}; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


# --- Single kinds.

SQL = {"guard": {"sqlUnique": {"databaseSecretRef": {"name": "db"}}}}


def with_kinds(handler: Mapping[str, object], kinds: Mapping[str, object], **more: object) -> RoutingHandler:
    made = built({**handler, "kinds": kinds}, **more)
    assert isinstance(made, RoutingHandler)
    return made


async def joining(task: object, connection: object) -> None:
    """Takes part in the transaction of a SQL guard."""


async def failing(task: Task) -> None:
    raise ValueError(task.kind)


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


@pytest.mark.parametrize("first", ["joins", "does not"])
def test_one_sql_guard_serves_handlers_that_take_its_connection_or_handlers_that_do_not(first: str) -> None:
    taking = {"python": {"callable": "tests.unit.handlers.test_build:joining"}}
    other: dict[str, object] = {"http": URL}
    assert with_kinds(taking, {"push": taking}, **SQL).joins
    assert not with_kinds(other, {"push": other}, **SQL).joins
    one, two = (taking, other) if first == "joins" else (other, taking)
    with pytest.raises(
        HandlerSetupError, match=r"^spec.handler.kinds: under a SQL guard either every handler"
    ):
        with_kinds(one, {"push": two}, **SQL)


def test_a_route_that_may_be_misspelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = {"python": {"app": "tests.unit.handlers.test_build:pushing"}}
    with_kinds(app, {"psuh": {"http": URL}, "other": {"http": URL}})
    with_kinds(app, {"push": {"http": URL}})
    assert [record.fields for record in caplog.records] == [{"kind": "psuh", "similar": "push"}]  # type: ignore[attr-defined]


async def test_every_handler_runs_in_the_guards_block_and_all_are_closed_when_one_cannot_start() -> None:
    failing = {"python": {"callable": "tests.unit.handlers.test_build:failing"}}
    events: list[str] = []

    @asynccontextmanager
    async def guard(task: Task) -> AsyncIterator[None]:
        events.append(task.kind)
        yield

    made = with_kinds(failing, {"push": failing})
    call = made.under(cast("Guard[Any]", guard))
    for kind in ("push", ""):
        with pytest.raises(ValueError, match=f"^{kind}$"):
            await call(replace(a_task(), kind=kind))
    assert events == ["push", ""]

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
