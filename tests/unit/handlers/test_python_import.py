"""spec.handler.python.callable: found, or refused with a sentence that says which part is wrong."""

from __future__ import annotations

import sys
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest
from delayq.handlers import HandlerSetupError
from delayq.handlers.importing import load as load_at
from delayq.handlers.importing import takes_connection
from delayq.handlers.python import FIELD, PythonHandler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

load = partial(load_at, field=FIELD)

SOURCE = """
import functools

class Shop:
    limit = 3
    async def cancel(self, task): ...
    def __call__(self, task): ...
    @staticmethod
    def settle(task): ...

shop = Shop()
number = 3
late = functools.partial(lambda order, task: None, 1)

async def cancel(task): ...
def no_arguments(): ...
def two(task, order): ...
def optional(task, order=None, *, loud=False): ...
def keyword(task, *, loud): ...
async def joins(task, connection): ...
joined = functools.partial(lambda task, connection: None, connection=1)
def joins_by_keyword(task, *, connection): ...
def may_join(task, connection=None): ...
def generator(task): yield task
async def async_generator(task): yield task
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module into the current directory, which is not on the path yet, and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(source: str) -> str:
        name = f"shop_{uuid.uuid4().hex[:8]}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


@pytest.mark.parametrize(
    "name", ["cancel", "shop", "shop.cancel", "Shop.settle", "late", "optional", "joins"]
)
def test_a_callable_is_found_from_the_current_directory(module: Callable[[str], str], name: str) -> None:
    assert callable(load(f"{module(SOURCE)}:{name}"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("cancle", 'has no attribute "cancle", did you mean "cancel"?'),
        ("shop.nothing_like_it", 'has no attribute "nothing_like_it"'),
        ("number", "is not callable, it is of type int"),
        ("Shop", "is a class"),
        ("no_arguments", "must be callable with one argument, the task: too many positional arguments"),
        ("two", "missing a required argument: 'order'"),
        ("Shop.cancel", "missing a required argument: 'task'"),
        ("keyword", "argument: 'loud'"),
        ("generator", "is a generator function"),
        ("async_generator", "is a generator function"),
    ],
)
def test_what_cannot_be_called_with_a_task_is_refused(
    module: Callable[[str], str], name: str, problem: str
) -> None:
    with pytest.raises(HandlerSetupError) as error:
        load(f"{module(SOURCE)}:{name}")
    assert error.value.field == "spec.handler.python.callable"
    assert problem in error.value.problem


def test_a_missing_attribute_is_reported_with_its_owner(module: Callable[[str], str]) -> None:
    name = module(SOURCE)
    for path, owner in (
        (f"{name}:refund", f'module "{name}"'),
        (f"{name}:shop.refund", f'"{name}:shop.refund"'),
    ):
        with pytest.raises(HandlerSetupError, match=f'^spec[^ ]+: {owner} has no attribute "refund"'):
            load(path)


def test_a_missing_module_is_told_from_a_module_that_misses_something(module: Callable[[str], str]) -> None:
    """A typing error in the document reads differently from an import error inside the user's module."""
    broken = module("import nowhere_to_be_found")
    with pytest.raises(HandlerSetupError, match='no module "shop_missing"'):
        load("shop_missing:cancel")
    with pytest.raises(HandlerSetupError, match='no module "shop_missing"'):
        load("shop_missing.orders:cancel")
    with pytest.raises(HandlerSetupError, match=f'importing "{broken}" failed: ModuleNotFoundError.*nowhere'):
        load(f"{broken}:cancel")


@pytest.mark.parametrize(
    ("source", "error"),
    [("1 / 0", "ZeroDivisionError"), ("raise SystemExit(2)", "SystemExit: 2"), ("def", "SyntaxError")],
)
def test_a_module_that_fails_while_it_is_imported_is_quoted(
    module: Callable[[str], str], source: str, error: str
) -> None:
    with pytest.raises(HandlerSetupError, match=error):
        load(f"{module(source)}:cancel")


@pytest.mark.parametrize("path", ["shop", ":cancel", "shop:"])
def test_a_path_without_its_two_parts_is_refused(path: str) -> None:
    with pytest.raises(HandlerSetupError, match='expected "module:callable"'):
        load(path)


@pytest.mark.parametrize(
    ("name", "joins"),
    [
        ("cancel", False),
        ("joins", True),
        ("joins_by_keyword", True),
        ("may_join", True),
        ("joined", False),
        ("shop.cancel", False),
    ],
)
def test_a_parameter_named_connection_takes_part_in_the_guards_transaction(
    module: Callable[[str], str], name: str, *, joins: bool
) -> None:
    """With a default, too; not when it was given already."""
    path = f"{module(SOURCE)}:{name}"
    assert takes_connection(load(path)) is joins
    assert PythonHandler(path, concurrency=1, transactions=True).joins is joins


def test_a_second_parameter_of_another_name_is_told_what_it_could_be(module: Callable[[str], str]) -> None:
    path = f"{module('def conn(task, conn): ...')}:conn"
    said = r"callable with one argument, the task, or with two, \(task, connection\): missing .* 'conn'"
    with pytest.raises(HandlerSetupError, match=said):
        PythonHandler(path, concurrency=1)


def test_a_connection_is_refused_where_no_guard_gives_one(module: Callable[[str], str]) -> None:
    path = f"{module(SOURCE)}:joins"
    assert not PythonHandler(path.replace("joins", "may_join"), concurrency=1).joins
    with pytest.raises(
        HandlerSetupError,
        match=f'"{path}" takes a connection, which only spec.guard.sqlUnique, sqlPessimistic and sqlOptimistic give',
    ):
        PythonHandler(path, concurrency=1)
