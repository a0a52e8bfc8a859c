"""How results are written: tables for people, JSON or YAML for programs. Not here: what a result is (views.py)."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click
import yaml

from delayq.cli.words import clean
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
    help="How to write the result.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")


@dataclass(frozen=True)
class Table:
    """Rows under headings, which begin with > where the column is aligned to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    below: Sequence[str] = ()

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """Heading of each column, and whether it is aligned to the right."""
        return [(heading.lstrip(">"), heading.startswith(">")) for heading in self.headings]

    def lines(self) -> Iterable[str]:
        """Write it plainly: every cell whole, columns two spaces apart."""
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
        """Return the same for a terminal: a line that is too long is cut, which is why errors stand last."""
        from rich.console import Group  # noqa: PLC0415 -- a tenth of a second that pipes need not pay
        from rich.text import Text  # noqa: PLC0415 -- as above

        lines = list(self.lines())
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        text.stylize("bold", 0, len(lines[0]))
        return Group(text)  # a bare text loses its way of wrapping when it is printed


def emit(output: Output, value: Any, table: Table | str) -> None:  # noqa: ANN401 -- whatever JSON can hold
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
        # PyYAML would write line breaks of Unicode, which it reads as such, and changes of direction as they are.
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
    """Write one thing: a fact a line, values under each other."""
    shown = [(name, clean(value)) for name, value in pairs]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in shown)


def note(text: str) -> None:
    """Say something beside the result."""
    click.echo(clean(text), err=True)
