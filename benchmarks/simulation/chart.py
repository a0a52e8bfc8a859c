"""A simulation as text: panels of columns in blocks of an eighth, no wider than a terminal. Pure.

Own and small on purpose: the libraries for this draw curves over numbers, not stretches under a shared time axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
HEIGHT: Final = 6
AXIS: Final = 9
"""Columns for the scale on the left."""


class Panel(NamedTuple):
    """Columns over time."""

    title: str
    values: Sequence[float]
    line: Sequence[float] | None = None
    """A second series, drawn as a line over the columns."""
    say: Callable[[float], str] = "{:,.0f}".format
    """How the scale is written."""


def chart(panels: Sequence[Panel], ticks: Sequence[tuple[int, str]], width: int) -> Iterator[str]:
    """Draw panels above one another; `ticks` are places on the time axis, from 0, and what they are called."""
    for panel in panels:
        yield from _panel(panel)
    marks = {place for place, _ in ticks}
    yield " " * AXIS + "└" + "".join("┴" if place in marks else "─" for place in range(width))
    yield (" " * AXIS + " " + _names(ticks, width)).rstrip()


def _panel(panel: Panel) -> Iterator[str]:
    top = max([*panel.values, *(panel.line or ()), 0.0])
    yield " " * AXIS + " " + panel.title
    for row in range(HEIGHT, 0, -1):
        label = panel.say(top) if row == HEIGHT else panel.say(0.0) if row == 1 else ""
        cells = "".join(_cell(panel, place, row, top) for place in range(len(panel.values)))
        yield f"{label.rjust(AXIS - 1)} │{cells}".rstrip()


def _cell(panel: Panel, place: int, row: int, top: float) -> str:
    if not top:
        return " "
    if panel.line is not None and panel.line[place] and _row(panel.line[place], top) == row:
        return "─" if panel.values[place] / top * HEIGHT < row else "━"
    eighths = panel.values[place] / top * HEIGHT * 8 - (row - 1) * 8
    # Something is never drawn as nothing.
    least = 1 if row == 1 and panel.values[place] > 0 else 0
    return BLOCKS[max(least, min(8, round(eighths)))]


def _row(value: float, top: float) -> int:
    return max(1, min(HEIGHT, -int(-value / top * HEIGHT // 1)))


def _names(ticks: Sequence[tuple[int, str]], width: int) -> str:
    line = ""
    for place, name in ticks:
        if not line or len(line) < place <= width - len(name):
            line = line.ljust(place) + name
    return line
