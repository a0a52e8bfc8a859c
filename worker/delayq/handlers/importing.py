"""Import the callable that `module.sub:function.attr` names; errors describe which part is wrong.

Not here: running the callable (`python.py`).
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from delayq.handlers.base import HandlerSetupError
from delayq.handlers.failures import innermost, message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

CONNECTION = "connection"
"""The second parameter of a function that takes part in its guard's transaction."""
TASK = "one argument, the task"
_DELAYQ = f"{Path(__file__).parents[1]}{os.sep}"
_NO_EXIT = (
    'an import must not end the process: move the call into a function, or below if __name__ == "__main__":'
)
TASK_OR_BOTH = f"{TASK}, or with two, (task, {CONNECTION})"


class ModuleMissing(HandlerSetupError):
    """The module that the document names is not here: it may be elsewhere, as where only tasks are stored."""


def load(path: str, field: str, *, takes: str = TASK) -> Callable[..., object]:
    """Import the callable that the document names at `field` and check that one task can be passed to it.

    `takes` describes the accepted arguments, for the error message.
    """
    target = load_object(path, field)
    if not callable(target):
        raise HandlerSetupError(field, f'"{path}" is not callable, it is of type {type(target).__name__}')
    if inspect.isclass(target):
        problem = f'"{path}" is a class: calling it only builds an instance; name a function or an instance'
        raise HandlerSetupError(field, problem)
    if _is_generator(target):
        problem = f'"{path}" is a generator function (it has a yield): calling it runs nothing'
        raise HandlerSetupError(field, problem)
    if error := _misfit(target):
        problem = (
            f'"{path}" must be callable with {takes}: {error}; its signature is {inspect.signature(target)}'
        )
        raise HandlerSetupError(field, problem)
    return target


def load_object(path: str, field: str) -> object:
    """Import the object that the document names at `field`."""
    module_name, _, attributes = path.partition(":")
    if not module_name or not attributes:
        raise HandlerSetupError(field, f'expected "module:callable", got "{path}"')
    _put_current_directory_on_path()
    found: object = _import(module_name, field)
    for name in attributes.split("."):
        found = _attribute(found, name, path, field)
    return found


def takes_connection(target: Callable[..., object]) -> bool:
    """Whether a callable has an unbound parameter named `connection`."""
    return _connection(target) is not None and not (
        isinstance(target, functools.partial) and CONNECTION in target.keywords
    )


def needs_connection(target: Callable[..., object]) -> bool:
    """Whether a callable requires its parameter `connection`."""
    parameter = _connection(target)
    return parameter is not None and parameter.default is parameter.empty


def _connection(target: Callable[..., object]) -> inspect.Parameter | None:
    try:
        return inspect.signature(target).parameters.get(CONNECTION)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return None


def unwrap(target: object) -> object:
    """Return the function under nested partials."""
    while isinstance(target, functools.partial):
        target = target.func
    return target


def _put_current_directory_on_path() -> None:
    """Add the current directory to the path, as `python -m` does without -P; a console script does not."""
    here = str(Path.cwd())
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def _import(name: str, field: str) -> ModuleType:
    try:
        with _exit_is_an_error():
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # user code: a script without a main guard may even exit
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and (name == missing or name.startswith(f"{missing}.")):
            problem = f'no module "{missing}" in {Path.cwd()} or on the Python path'
            raise ModuleMissing(field, problem) from error
        hint = f"; {_NO_EXIT}" if isinstance(error, SystemExit) else ""
        raise HandlerSetupError(field, f'importing "{name}" failed: {_described(error)}{hint}') from error


@contextmanager
def _exit_is_an_error() -> Iterator[None]:
    """Let os._exit() of imported code raise SystemExit: the process would end without a message, maybe with code 0.

    In other threads, in forked processes and after the import, it ends the process, also for who imported its name.
    """
    end, here, importing = os._exit, (os.getpid(), threading.get_ident()), True

    def refuse(status: int) -> NoReturn:
        ours = sys._getframe(1).f_code.co_filename.startswith(_DELAYQ)  # noqa: SLF001 -- a signal handler of delayq
        if importing and not ours and here == (os.getpid(), threading.get_ident()):
            raise SystemExit(f"os._exit({status})")
        end(status)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit, importing = end, False


def _described(error: BaseException) -> str:
    """Return an error of the user's module and where it is: `NameError: name 'ap' is not defined (tasks.py line 3)`."""
    message, file, line = message_of(error), "", 0
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        message, file, line = error.msg, error.filename, error.lineno or 0
    elif found := innermost(error):
        file, line = found[0].f_code.co_filename, found[1]
    return f"{type(error).__name__}: {message}{_in(file, line)}"


def _in(file: str, line: int = 0) -> str:
    """` (tasks.py line 3)`, relative to the current directory if the file is below it; empty without a file."""
    if not file:
        return ""
    shown = os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file
    return f" ({shown} line {line})" if line else f" ({shown})"


def _attribute(owner: object, name: str, path: str, field: str) -> object:
    try:
        return getattr(owner, name)
    except AttributeError:
        last = path.endswith((f":{name}", f".{name}"))
        near = difflib.get_close_matches(name, _candidates(owner) if last else dir(owner), n=1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        module = owner if inspect.ismodule(owner) else None
        what = f'"{path}"' if module is None else f'module "{module.__name__}"'
        where = "" if module is None else _in(getattr(module, "__file__", None) or "")
        raise HandlerSetupError(field, f'{what} has no attribute "{name}"{hint}{where}') from None


def _candidates(owner: object) -> list[str]:
    """Return the names that a path can end in: no class, such as App, and no module."""
    members = inspect.getmembers_static(
        owner, lambda value: not inspect.isclass(value) and not inspect.ismodule(value)
    )
    return [name for name, _ in members]


def _is_generator(target: Callable[..., object]) -> bool:
    function = unwrap(target)
    return any(
        check(candidate)
        for check in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        for candidate in (function, type(function).__call__)
    )


def _misfit(target: Callable[..., object]) -> TypeError | None:
    """Return why the callable cannot be called with one task; None if it can, or if nothing is known."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # as above
        return None
    try:
        signature.bind(None, **({CONNECTION: None} if needs_connection(target) else {}))
    except TypeError as error:
        return error
    return None
