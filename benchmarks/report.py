"""The table on the terminal and the JSON beside it. No measuring here."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from benchmarks.figures import Figure

RESULTS = Path(__file__).parent / "results"
PAGES = Path(__file__).parent.parent / "docs" / "explanation"  # show the kept figures, between two lines
FIRST, LAST = "<!-- {name} figures: written by --keep -->", "<!-- end of {name} figures -->"
NAME_WIDTH, MODE_WIDTH = 50, 23
Key = tuple[str, str]  # benchmark and name: a line of the table


@dataclass
class Report:
    """All figures of a run, by persistence mode."""

    facts: dict[str, object]
    modes: tuple[str, ...]
    started: str
    name: str = "queue"  # of the file that is committed, and of the place in the documentation
    figures: dict[Key, dict[str, Figure]] = field(default_factory=dict)
    extra: dict[str, object] = field(default_factory=dict)  # for the JSON alone
    ratios: str = "× of the raw ceiling"  # what stands above the ratios

    def add(self, mode: str, figures: list[Figure]) -> None:
        for figure in figures:
            self.figures.setdefault((figure.bench, figure.name), {})[mode] = figure

    @property
    def missed(self) -> list[str]:
        """Name the figures that miss their targets."""
        return [
            f"{bench} {name} ({mode})"
            for (bench, name), found in self.figures.items()
            for mode, figure in found.items()
            if figure.met is False
        ]

    def heading(self) -> str:
        facts = self.facts
        columns = "".join(f"{mode:>{MODE_WIDTH}}" for mode in map(self._named, self.modes))
        return (
            f"{facts['cores']} cores of {facts['cpu']}, Python {facts['python']}, {facts['against']}; "
            f"load before: {facts['load_before']}\n\n"
            f"   {'':<{NAME_WIDTH}}{columns}   {'target':<20}{self.ratios}"
        )

    def _named(self, mode: str) -> str:
        return f"persistence {mode}" if self.name == "queue" else mode

    def lines(self, benchmark: str) -> str:
        """Return the table's lines of one benchmark."""
        return "\n".join(
            self._line(*key, found) for key, found in self.figures.items() if key[0] == benchmark
        )

    def _line(self, bench: str, name: str, found: dict[str, Figure]) -> str:
        cells = "".join(f"{_cell(found.get(mode)):>{MODE_WIDTH}}" for mode in self.modes)
        some = next(iter(found.values()))
        target = f"{some.target.sign} {_number(some.target.bound)}" if some.target else ""
        ratios = " / ".join(_number(each.ratio) for each in found.values() if each.ratio)
        against = f"{ratios} of {some.base_name}" if ratios else ""
        return (
            f"{bench if bench != '0' else ' '}  {name:<{NAME_WIDTH}}{cells}   {target:<20}{against}".rstrip()
        )

    def write(self, *, keep: bool) -> Path:
        """Write the JSON: under its date, and under its name and into the documentation with --keep."""
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(self._document(), indent=2, ensure_ascii=False) + "\n"
        path = RESULTS / f"{self.name}-{self.started.replace(':', '')}.json"
        path.write_text(text)
        if keep:
            (RESULTS / f"{self.name}.json").write_text(text)
            first, last = FIRST.format(name=self.name), LAST.format(name=self.name)
            page = next(each for each in PAGES.glob("*.md") if first in each.read_text())
            before, _, rest = page.read_text().partition(first)
            page.write_text(before + first + "\n" + self._markdown() + last + rest.partition(last)[2])
        return path

    def finish(self, *, keep: bool, strict: bool) -> int:
        """Write, say where, and return the exit code: 1 when a target is missed and `strict` was asked for."""
        print(f"\nwritten to {self.write(keep=keep)}")
        if self.missed:
            print("targets missed: " + "; ".join(self.missed))
        return int(bool(self.missed) and strict)

    def _markdown(self) -> str:
        """Return what the terminal shows, for a page."""
        letters = dict.fromkeys(bench for bench, _ in self.figures)
        table = "\n".join([self.heading(), *map(self.lines, letters)])
        return f"Measured {self.started[:10]}.\n\n```\n{table}\n```\n"

    def _document(self) -> dict[str, object]:
        lines = [_entry(mode, figure) for found in self.figures.values() for mode, figure in found.items()]
        return {"started": self.started, "machine": self.facts, "figures": lines} | self.extra


def add_options(parser: ArgumentParser, name: str) -> None:
    """Add what every benchmark with a report takes."""
    parser.add_argument("--keep", action="store_true", help=f"write results/{name}.json, which is committed")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")


def _entry(mode: str, figure: Figure) -> dict[str, object]:
    target = f"{figure.target.sign} {figure.target.bound:g}" if figure.target else None
    return {
        "bench": figure.bench,
        "name": figure.name.strip(),
        "persistence": mode,
        "value": _rounded(figure.value),
        "unit": figure.unit,
        "runs": [_rounded(run) for run in figure.runs],
        "target": target,
        "met": figure.met,
        "ratio": _rounded(figure.ratio) if figure.ratio else None,
        "ratio_to": figure.base_name or None,
    }


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    mark = {True: " ✓", False: " ✗", None: "  "}[figure.met]
    return f"{_number(figure.value)} {figure.unit:<7}{mark}"


def _number(value: float) -> str:
    if value >= 1000:  # noqa: PLR2004 -- from here on, decimals say nothing
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def _rounded(value: float) -> float:
    """Return four significant digits: more would pretend."""
    return float(f"{value:.4g}")


def say(what: str) -> None:
    """Tell on the terminal what is under way."""
    print(f"\033[2m· {time.strftime('%H:%M:%S')} {what}\033[0m", file=sys.stderr, flush=True)
