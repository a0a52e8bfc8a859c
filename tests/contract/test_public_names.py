"""The public names of Python: all are listed, their annotations can be read, and importing them stays light."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import subprocess
import sys
import textwrap
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import delayq
import delayq.django
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
    module.__name__: module
    for module in (delayq, delayq.django, delayq.guards, delayq.handlers, delayq.testing)
}
EXPORTED: dict[str, Any] = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in PUBLIC.values()
    for name in module.__all__
}
ROOT = Path(__file__).parents[2]
POLICY = ROOT / "docs" / "reference" / "api-policy.md"
FOR_CONTRIBUTORS = ROOT / "docs" / "contributing"
PAGES = [
    page
    for page in sorted({ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")})
    if FOR_CONTRIBUTORS not in page.parents
]
PROGRAMS = sorted(ROOT.glob("examples/**/*.py"))
PYTHON = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
DOTTED = re.compile(r"(?<![\w/.$-])delayq(?:\.[A-Za-z]\w*)+(?![\w/])")
FILES = {"delayq.rules.yaml", "delayq.service"}
"""Of Prometheus and of systemd."""
DUNDERS = {"__init__", "__call__", "__iter__", "__enter__", "__exit__", "__aenter__", "__aexit__"}
INTERNAL = {
    *("Call", "Commands", "Options", "ScheduleRecord", "Settled", "ShardMap"),
    *("ScheduleMetadata", "ScheduleSpec", "Shape"),
}
"""What `options()` returns and holds, what tools of delayq itself read, and `Run.outcome`, which equals a string; and
the parts of a DelaySchedule document."""


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


def imported(program: str) -> Iterator[str]:
    """Each name that a program imports of delayq: `delayq.guards.SqlUnique`."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "delayq":
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] == "delayq")


def named(page: Path) -> set[str]:
    """Each name of delayq's Python that a page imports, or writes out in code."""
    text = page.read_text()
    programs = [textwrap.dedent(block) for _, block in PYTHON.findall(text)]
    code = [*programs, *re.findall(r"`([^`\n]+)`", text)]
    return {name for each in programs for name in imported(each)} | {
        name for each in code for name in DOTTED.findall(each) if name not in FILES
    }


def is_public(name: str) -> bool:
    """Whether it is a public module, or one of its names, perhaps with an attribute: `delayq.Limits.max_bytes`."""
    heads = [name.rsplit(".", parts)[0] for parts in range(name.count(".") + 1)]
    return name in PUBLIC or any(head in EXPORTED for head in heads) or name == "delayq.__version__"


def test_pages_and_examples_use_public_names_only() -> None:
    found = {page: named(page) for page in PAGES}
    found |= {program: set(imported(program.read_text())) for program in PROGRAMS}
    private = {
        (str(page.relative_to(ROOT)), name)
        for page, names in found.items()
        for name in names
        if not is_public(name)
    }
    assert private == set()
    assert {"delayq.App", "delayq.guards.SqlUnique", "delayq.handlers.verify"} <= set().union(*found.values())


def test_the_api_policy_lists_the_public_names() -> None:
    listed: dict[str, list[str]] = {}
    module = ""
    section = POLICY.read_text().partition("## Names of Python")[2].partition("\n## ")[0]
    for first, names in re.findall(r"^\| *(?:`([\w.]+)`)? *\|[^|]*\| ([^|]*) \|$", section, re.MULTILINE):
        module = first or module
        listed.setdefault(module, []).extend(re.findall(r"`(\w+)`", names))
    assert {name: sorted(names) for name, names in listed.items()} == {
        name: module.__all__ for name, module in PUBLIC.items()
    }


def test_the_members_that_the_site_hides_exist_and_no_guide_names_them() -> None:
    [listed] = re.findall(r'^ *- "!\^\(([\w|]+)\)\$"$', (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    hidden, classes = set(listed.split("|")), [each for each in EXPORTED.values() if inspect.isclass(each)]
    sources = {inspect.getsource(base) for each in classes for base in each.__mro__[:-1] if own(base)}
    made = {name for source in sources for name in re.findall(r"\bself\.(\w+)", source)}
    assert hidden <= made.union(*map(dir, classes))
    owners = "|".join({each.__name__ for each in classes} | {"app", "client", "queue", "guard"})
    guides = {page: re.findall(rf"\b(?:{owners})\.(\w+)", page.read_text()) for page in PAGES}
    assert {(page.name, name) for page, names in guides.items() for name in names if name in hidden} == set()


def own(kind: type) -> bool:
    return kind.__module__.startswith("delayq")


def test_a_page_beside_the_list_explains_each_public_name() -> None:
    words = {word for page in PAGES if page != POLICY for word in re.findall(r"\w+", page.read_text())}
    assert {name for name in EXPORTED if name.rpartition(".")[2] not in words} == set()


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
    light = [
        "durations",
        "errors",
        "protocol",
        "protocol.envelope",
        "protocol.instants",
        "protocol.keys",
        "protocol.results",
    ]
    expected = ["delayq", *(f"delayq.{name}" for name in (*light, "protocol.write_durability", "testing"))]
    assert done.stdout == f"{expected}\n"
