"""Tables: whole in a pipe, cut to fit on a terminal; JSON and YAML as they are."""

from __future__ import annotations

import json
from io import StringIO

import yaml
from delayq.cli.output import Table, serialized
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

TABLE = Table(
    [">COUNT", "LAST", "ERROR"], [["212", "2m", "x" * 100], ["3", "4h", "[bold]not \x1b[31mmarkup[/]"]]
)


def on_a_terminal(table: Table, width: int) -> list[str]:
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(table.rich())
    return [line.rstrip() for line in capture.get().splitlines()]


def test_in_a_pipe_every_cell_is_whole() -> None:
    assert list(TABLE.lines()) == [
        "COUNT  LAST  ERROR",
        "  212  2m    " + "x" * 100,
        "    3  4h    [bold]not ·[31mmarkup[/]",
    ]


def test_on_a_terminal_the_last_column_is_cut_to_80() -> None:
    lines = on_a_terminal(TABLE, 80)
    assert [len(line) <= 80 for line in lines] == [True] * 3
    assert lines[1].startswith("  212  2m    xxxx")
    assert lines[1].endswith("x…")
    assert lines[2] == "    3  4h    [bold]not ·[31mmarkup[/]"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(VALUES)
def test_json_and_yaml_read_back(value: object) -> None:
    for kind, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        text = serialized(kind, value)  # type: ignore[arg-type]
        assert read(text) == value
        assert all(char.isprintable() or char == "\n" for char in text), "it may drive a terminal"
