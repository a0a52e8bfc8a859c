"""spec.handler.python.callable: found, or refused with a sentence that says which part is wrong."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest
from delayq.handlers.base import HandlerSetupError
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
    ("path", "problem"),
    [
        ("M:cancle", 'module "M" has no attribute "cancle", did you mean "cancel"?'),
        ("M:Shops", 'has no attribute "Shops", did you mean "shop"?'),  # Shop is a class
        ("M:shop.nothing_like_it", '"M:shop.nothing_like_it" has no attribute "nothing_like_it"'),
        ("M:number", "is not callable, it is of type int"),
        ("M:Shop", "is a class"),
        ("M:no_arguments", "must be callable with one argument, the task: too many positional arguments"),
        ("M:two", "missing a required argument: 'order'"),
        ("M:Shop.cancel", "missing a required argument: 'task'"),
        ("M:keyword", "argument: 'loud'"),
        ("M:generator", "is a generator function"),
        ("M:async_generator", "is a generator function"),
        ("shop_missing.orders:cancel", 'no module "shop_missing"'),
        ("shop", 'expected "module:callable"'),
        (":cancel", 'expected "module:callable"'),
        ("shop:", 'expected "module:callable"'),
    ],
)
def test_what_cannot_be_called_with_a_task_is_refused(
    module: Callable[[str], str], path: str, problem: str
) -> None:
    name = module(SOURCE)
    with pytest.raises(HandlerSetupError) as error:
        load(path.replace("M:", f"{name}:"))
    assert error.value.field == "spec.handler.python.callable"
    assert problem.replace('"M', f'"{name}') in error.value.problem


@pytest.mark.parametrize(
    ("source", "error", "line"),
    [
        ("\n1 / 0", "ZeroDivisionError: division by zero", 2),
        ("raise SystemExit(2)", "SystemExit: 2", 1),
        ("import os\ndef", "SyntaxError: invalid syntax", 2),
        # Not a missing module of the document.
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'", 1),
        # What delayq and libraries do for the module is no place that a user corrects.
        ("import json\n\njson.loads('{')", "JSONDecodeError: Expecting property name", 3),
        (
            "from delayq import App\napp = App('queue.yaml')\n@app.task(max_retries=3)\ndef f(): ...",
            "TypeError: ",
            3,
        ),
        ("import ast\nast.literal_eval('def')", "SyntaxError: invalid syntax", 2),
    ],
)
def test_a_module_that_fails_while_it_is_imported_is_quoted_with_file_and_line(
    module: Callable[[str], str], source: str, error: str, line: int
) -> None:
    broken = module(source)
    with pytest.raises(HandlerSetupError) as raised:
        load(f"{broken}:cancel")
    assert raised.value.problem.startswith(f'importing "{broken}" failed: {error}')
    place = raised.value.problem.partition("; an import must not")[0]
    assert place.endswith(f"({broken}.py line {line})")


@pytest.mark.parametrize(
    "source", ["import os\nos._exit(0)", "from os import _exit\n_exit(0)", "import sys\nsys.exit(0)"]
)
def test_a_module_that_ends_the_process_while_it_is_imported_is_an_error_with_its_cure(
    module: Callable[[str], str], source: str
) -> None:
    broken = module(source)
    with pytest.raises(HandlerSetupError) as raised:
        load(f"{broken}:cancel")
    assert raised.value.problem.startswith(f'importing "{broken}" failed: SystemExit: ')
    assert f"({broken}.py line 2); an import must not end the process: move the call" in raised.value.problem
    assert os._exit.__module__ in ("posix", "nt")


def test_an_imported_exit_ends_the_process_after_the_import_and_in_what_the_module_forks(
    tmp_path: Path,
) -> None:
    (tmp_path / "leaving.py").write_text(
        "import os\nfrom os import _exit\ndef run(task): _exit(status + 1)\n"
        "if not (pid := os.fork()): _exit(3)\nstatus = os.waitpid(pid, 0)[1] >> 8\n"
    )
    program = "from delayq.handlers.importing import load; load('leaving:run', 'field')(None)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (4, b"")


def test_the_place_of_an_error_is_the_module_that_raises_it(
    module: Callable[[str], str], tmp_path: Path
) -> None:
    """And not the one that imports it. A file elsewhere has its whole path."""
    inner = module("x = 1\nx.y")
    outer = module(f"import {inner}")
    with pytest.raises(HandlerSetupError, match=rf"\({inner}\.py line 2\)$"):
        load(f"{outer}:cancel")
    (tmp_path / "here").mkdir()
    with contextlib.chdir(tmp_path / "here"):
        sys.path.insert(0, str(tmp_path))
        where = re.escape(str(tmp_path / inner))
        with pytest.raises(HandlerSetupError, match=rf"\({where}\.py line 2\)$"):
            load(f"{inner}:cancel")


def test_a_module_that_lacks_the_name_is_named_with_its_file(module: Callable[[str], str]) -> None:
    name = module(SOURCE)
    with pytest.raises(HandlerSetupError) as raised:
        load(f"{name}:cancle")
    assert raised.value.problem.endswith(f'did you mean "cancel"? ({name}.py)')


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


def test_a_second_parameter_of_another_name_gets_a_suggestion(module: Callable[[str], str]) -> None:
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
