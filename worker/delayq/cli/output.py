"""Write results: tables for people, JSON or YAML for programs. views.py defines the results."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click
import yaml

from delayq.cli.formats import clean
from delayq.service.terminal import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Output = Literal["table", "json", "yaml"]


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the result.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would happen, and change nothing.")


@dataclass(frozen=True)
class Table:
    """Rows under headings. A heading that begins with > aligns its column to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    below: Sequence[str] = ()

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """Heading of each column, and whether the column is aligned to the right."""
        return [(heading.lstrip(">"), heading.startswith(">")) for heading in self.headings]

    def lines(self) -> Iterable[str]:
        """Return plain lines: uncut cells, two spaces between columns."""
        rows = [[heading for heading, _ in self.columns], *[list(map(clean, row)) for row in self.rows]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, (_, right) in zip(row, widths, self.columns, strict=True)
            )
            yield "  ".join(cells).rstrip()
        yield from map(clean, self.below)

    def rich(self) -> Any:  # noqa: ANN401 -- rich is loaded for terminals only
        """Return the table for a terminal, which cuts long lines; therefore errors are the last column."""
        from rich.console import Group  # noqa: PLC0415 -- takes 0.1 s, which pipes do not need
        from rich.text import Text  # noqa: PLC0415 -- as above

        lines = list(self.lines())
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        text.stylize("bold", 0, len(lines[0]))
        return Group(text)  # printing a bare Text would reset no_wrap


def emit(output: Output, value: Any, table: Table | str) -> None:  # noqa: ANN401 -- any JSON value
    """Write a result: `value` for programs, `table` or a sentence for people."""
    if output != "table":
        click.echo(serialized(output, value))
    elif isinstance(table, str):
        click.echo(table)
    elif sys.stdout.isatty():
        _print(table)
    else:
        for line in table.lines():
            click.echo(line)


def emit_next(output: Output, value: Any) -> None:  # noqa: ANN401 -- as above
    """Write one of many results: a line of JSON, or a YAML document."""
    click.echo(one_line(value) if output == "json" else f"---\n{serialized(output, value)}")


def serialized(output: Output, value: Any) -> str:  # noqa: ANN401 -- as above
    """Return JSON or YAML; the order of keys is that of views.py."""
    if output == "yaml":
        # With allow_unicode, PyYAML would write Unicode line breaks and bidirectional controls unescaped.
        plain = json.dumps(value, ensure_ascii=False).isprintable()
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=plain, width=100).rstrip("\n")
    return escaped(json.dumps(value, indent=2, ensure_ascii=False))


def one_line(value: Any) -> str:  # noqa: ANN401 -- as above
    """Return JSON on one line, for streams."""
    return escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _print(table: Table) -> None:
    from rich.console import Console  # noqa: PLC0415 -- as above

    Console(highlight=False).print(table.rich())


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Format name-value pairs, one a line, values aligned."""
    shown = [(name, clean(value)) for name, value in pairs]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in shown)


def note(text: str) -> None:
    """Print a note to stderr."""
    click.echo(clean(text), err=True)
