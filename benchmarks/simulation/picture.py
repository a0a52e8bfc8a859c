"""A simulation as a PNG: load and capacity, workers, lateness, under one another. Needs the extra [chart]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from benchmarks.simulation.report import step_seconds
from benchmarks.simulation.series import series

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delayq.scaling import Policy

    from benchmarks.simulation.run import Run

PARTS: Final = 400
TICKS: Final = 8
COLOURS: Final = ("tab:blue", "tab:orange")


def draw(runs: Sequence[Run], policy: Policy, path: str, say: Callable[[float], str]) -> None:
    """Write the picture; `say` labels the time axis."""
    figure = Figure(figsize=(8, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    load, workers, late = figure.subplots(3, 1, sharex=True)
    end = max(run.end for run in runs)
    for run, colour in zip(runs, COLOURS, strict=False):
        found = series(run, end, PARTS)
        at = [end * part / PARTS for part in range(PARTS)]
        if run is runs[0]:
            load.fill_between(at, found.load, step="post", color="0.75", label="falling due")
        load.step(at, found.capacity, where="post", color=colour, label=f"capacity ready, {run.name}")
        workers.step(at, found.replicas, where="post", color=colour, label=f"asked for, {run.name}")
        workers.fill_between(
            at, found.ready, step="post", color=colour, alpha=0.25, label=f"ready, {run.name}"
        )
        late.step(at, found.late, where="post", color=colour, label=run.name)
    late.axhline(policy.lateness_seconds, color="tab:red", linestyle="--", linewidth=1, label="objective")
    for axes, title in ((load, "tasks a second"), (workers, "workers"), (late, "late by, seconds")):
        _labelled(axes, title)
    late.xaxis.set_major_locator(MultipleLocator(step_seconds(end, TICKS)))
    late.xaxis.set_major_formatter(FuncFormatter(lambda at, _: say(at)))
    late.set_xlim(0, end)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _labelled(axes: Any, title: str) -> None:  # noqa: ANN401 -- matplotlib's Axes
    axes.set_ylabel(title)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="best", fontsize="small")
