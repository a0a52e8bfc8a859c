"""docs/cli.md is what the commands say, printed; and what results hold is what that page promises."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from delayq.cli import exits
from delayq.cli.reference import render
from delayq.cli.result_keys import KEYS
from delayq.cli.root import COMMANDS

ROOT = Path(__file__).parents[3]
OPERATIONS = (ROOT / "docs/operations.md").read_text()


def test_the_page_is_current() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    assert page == render(), "run: python -m delayq.cli.reference > docs/cli.md"


def test_the_page_has_a_section_for_every_command_and_none_of_them_is_missing_a_help() -> None:
    sections = re.split(r"^## ", render(), flags=re.MULTILINE)
    helped = {section.split("\n")[0]: section for section in sections if section.startswith("delayq ")}
    assert {f"delayq {name}" for name in COMMANDS} <= set(helped)
    assert [name for name, section in helped.items() if "Needs the extra" in section] == []


def test_every_exit_code_has_a_meaning() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert set(exits.MEANINGS) == {0, *codes}


def test_the_operations_page_knows_no_other_exit_code() -> None:
    table = OPERATIONS.partition("## Exit codes")[2].partition("##")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} <= set(exits.MEANINGS)


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
