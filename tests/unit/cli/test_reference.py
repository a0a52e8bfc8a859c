"""The pages of the commands are their help, printed; and results hold what these pages promise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from delayq.cli import exits, many
from delayq.cli.root import COMMANDS, delayq

from tools.reference import crd
from tools.reference.commands import MEANINGS, PAGES, pages
from tools.reference.result_keys import KEYS

ROOT = Path(__file__).parents[3]
PROCESSES = (ROOT / "docs/reference/processes.md").read_text()


def test_the_pages_are_current() -> None:
    there = {name: (ROOT / "docs/reference" / name).read_text() for name in pages()}
    assert there == pages(), "run: python -m tools.reference.commands docs/reference"
    assert sorted(command for _, commands in PAGES.values() for command in commands) == sorted(COMMANDS)
    assert not any("Needs the extra" in page for page in there.values())


def test_the_help_of_schedule_names_every_field_that_a_line_of_many_may_have() -> None:
    """A duration is named once: exported tasks have it in milliseconds."""
    command = delayq.get_command(click.Context(delayq), "schedule")
    assert command is not None
    fields = set(many.READ) - {"deadline_ms", "debounce_ms"}
    assert [name for name in sorted(fields) if f'"{name}"' not in (command.help or "")] == []


@pytest.mark.parametrize("page", crd.PAGES)
def test_the_pages_of_the_crds_are_current(page: str) -> None:
    assert (ROOT / "docs/reference" / page).read_text() == crd.render(page), (
        "run: python -m tools.reference.crd docs/reference"
    )


def test_every_exit_code_has_a_meaning_and_is_on_the_page_of_processes() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    table = PROCESSES.partition("## Exit codes")[2].partition("##")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert codes <= listed <= {0, *codes} == set(MEANINGS)


def test_every_key_of_a_view_is_explained() -> None:
    tree = ast.parse((ROOT / "worker/delayq/cli/views.py").read_text())
    named = {
        key.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Dict)
        for key in each.keys
        if isinstance(key, ast.Constant)
    }
    assert named <= set(KEYS)
