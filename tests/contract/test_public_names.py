"""The public names of Python: all are listed, their annotations can be read, and importing them stays light."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import subprocess
import sys
import typing
from typing import TYPE_CHECKING, Any

import delayq
import delayq.guards
import delayq.handlers
import delayq.testing
import pytest
from delayq import App, Client, SyncClient, TaskKind
from delayq.testing import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PUBLIC: dict[str, ModuleType] = {
    module.__name__: module for module in (delayq, delayq.guards, delayq.handlers, delayq.testing)
}
EXPORTED: dict[str, Any] = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in PUBLIC.values()
    for name in module.__all__
}
DUNDERS = {"__init__", "__call__", "__iter__", "__enter__", "__exit__", "__aenter__", "__aexit__"}
INTERNAL = {"Call", "Commands", "Options", "Settled", "ShardMap"}
"""What `options()` returns and holds, what tools of delayq itself read, and `Run.outcome`, which equals a string."""


def parts(exported: object) -> Iterator[tuple[str, Any]]:
    """What has annotations: the function; the class and its public methods and properties."""
    if inspect.isroutine(exported):
        yield "", exported
    if not inspect.isclass(exported):
        return
    yield "", exported
    for name, member in inspect.getmembers_static(exported):
        if name.startswith("_") and name not in DUNDERS:
            continue
        if isinstance(member, functools.cached_property):
            member = member.func  # noqa: PLW2901
        member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)  # noqa: PLW2901
        if inspect.isfunction(member) and member.__module__.startswith("delayq"):
            yield name, member


def types_in(annotation: Any) -> Iterator[type]:  # noqa: ANN401 -- any annotation
    """Each class that an annotation names, also inside others."""
    if inspect.isclass(each := typing.get_origin(annotation) or annotation):
        yield each
    for each in typing.get_args(annotation):
        yield from types_in(each)


@pytest.mark.parametrize("module", PUBLIC.values(), ids=PUBLIC)
def test_dir_shows_all_public_names_and_they_are_sorted(module: ModuleType) -> None:
    assert module.__all__ == sorted(module.__all__)
    assert set(dir(module)) - {"__version__"} == set(module.__all__)
    assert all(hasattr(module, name) for name in dir(module))


@pytest.mark.parametrize("name", EXPORTED)
def test_the_annotations_of_a_public_name_can_be_read(name: str) -> None:
    for method, part in parts(EXPORTED[name]):
        try:
            typing.get_type_hints(part)
        except NameError as error:
            pytest.fail(f"{name}.{method}: {error}")


def test_what_public_calls_return_has_a_public_name() -> None:
    """So that callers can annotate their own functions."""
    returned = {
        each
        for owner in (App, Client, SyncClient, TaskKind, Queue)
        for _, part in parts(owner)
        for each in types_in(typing.get_type_hints(part).get("return"))
    }
    fields = {
        each
        for result in returned
        if dataclasses.is_dataclass(result) or issubclass(result, tuple)
        for annotation in typing.get_type_hints(result).values()
        for each in types_in(annotation)
    }
    own = {each for each in returned | fields if each.__module__.startswith("delayq")}
    public = [each for each in EXPORTED.values() if inspect.isclass(each)]
    assert {each.__name__ for each in own.difference(public)} == INTERNAL


def test_a_producer_imports_no_library_before_it_makes_a_client() -> None:
    """A name is imported with its first use: `import delayq` costs no more than the standard library."""
    program = """
import sys
import delayq, delayq.testing
dir(delayq), dir(delayq.testing)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("delayq", "redis", "yaml", "asyncio")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    light = ["errors", "protocol", "protocol.envelope", "protocol.keys", "protocol.results"]
    expected = ["delayq", *(f"delayq.{name}" for name in (*light, "protocol.write_durability", "testing"))]
    assert done.stdout == f"{expected}\n"
