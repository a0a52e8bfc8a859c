"""How a simulation is shown: a table over time with every decision, charts, a summary; JSON and YAML for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from delayq.cli.output import Table, emit, note
from delayq.cli.views import instant
from delayq.scaling import sentence
from delayq.scaling.sentences import seconds

from benchmarks.simulation.chart import Panel, chart
from benchmarks.simulation.report import evenly, step_seconds, stretches, summary
from benchmarks.simulation.series import series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delayq.cli.output import Output
    from delayq.scaling import Policy

    from benchmarks.simulation import Run
    from benchmarks.simulation.report import Lateness, Stretch, Summary
    from benchmarks.simulation.run import Change

MOST_ROWS: Final = 16
MOST_CHANGES: Final = 30
MOST_STRETCHES: Final = 500
WIDTH: Final = 72
TICKS: Final = 6
DAY: Final = 86_400
HEADINGS: Final = (
    *(">TIME", ">DUE", ">OVERDUE", ">RUNNING", ">WORKERS", ">READY"),
    *(">LATE-P50", ">P99", ">MAX", "DECISION"),
)


def show(runs: Sequence[Run], policy: Policy, start: float | None, output: Output) -> None:
    """Write everything; the table is of the first run."""
    sums = [summary(run, policy) for run in runs]
    if output != "table":
        emit(output, {"runs": [_view(run, each, start) for run, each in zip(runs, sums, strict=True)]}, "")
        return
    emit(output, None, _table(runs[0], start))
    click.echo()
    for line in _charts(runs, start):
        click.echo(line)
    click.echo()
    emit(output, None, _sums(sums, policy))


def _table(run: Run, start: float | None) -> Table:
    shown = run.changes[:MOST_CHANGES]
    why = {change.at: change for change in shown}
    starts = sorted({*evenly(run.end, step_seconds(run.end, MOST_ROWS)), *why})
    say = clock(start, run.end)
    rows = []
    for each in stretches(run, starts, run.end):
        look = each.look
        numbers = (each.due, look.overdue, look.in_flight, look.replicas, look.ready)
        late = ["-"] * 3 if each.late is None else [seconds(value) for value in each.late]
        change = why.get(each.start)
        rows.append([say(each.start), *(f"{n:,}" for n in numbers), *late, _reason(change)])
    left = len(run.changes) - len(shown)
    below = [f"{left:,} more changes are left out here; -o json has them all"] if left else []
    return Table(HEADINGS, rows, below)


def _reason(change: Change | None) -> str:
    return "" if change is None or change.decision is None else sentence(change.decision)


def clock(start: float | None, span: float) -> Callable[[float], str]:
    """Return how times are said: from the start, or of the day (UTC) when the tasks have dates."""
    if start is None:
        return _elapsed
    style = "%H:%M:%S" if span < DAY else "%m-%d %H:%M"
    return lambda at: datetime.fromtimestamp(start + at, UTC).strftime(style)


def _elapsed(at: float) -> str:
    minutes, rest = divmod(round(at), 60)
    hours, minutes = divmod(minutes, 60)
    return f"+{hours}:{minutes:02}:{rest:02}" if hours else f"+{minutes}:{rest:02}"


def _charts(runs: Sequence[Run], start: float | None) -> Iterator[str]:
    end = max(run.end for run in runs)
    panels: list[Panel] = []
    for run in runs:
        found = series(run, end, WIDTH)
        whose = f"{run.name}: " if len(runs) > 1 else ""
        if run is runs[0]:
            title = "tasks falling due a second (columns), what the workers ready can do (line)"
            panels.append(Panel(title, found.load, found.capacity))
        panels.append(Panel(f"{whose}workers ready (columns), asked for (line)", found.ready, found.replicas))
        panels.append(Panel(f"{whose}how late tasks began that fell due then", found.late, None, seconds))
    say = clock(start, end)
    ticks = [(round(at / end * WIDTH), say(at)) for at in evenly(end, step_seconds(end, TICKS))]
    yield from chart(panels, ticks, WIDTH)


def _sums(sums: Sequence[Summary], policy: Policy) -> Table:
    within = seconds(policy.lateness_seconds)
    rows: list[tuple[str, Callable[[Summary], str]]] = [
        ("tasks", lambda each: f"{each.tasks:,}"),
        ("begun early", lambda each: f"{each.early:,}"),
        ("late p50 / p99 / max", lambda each: _late(each.late)),
        (f"begun within {within}", lambda each: f"{_percent(each.in_time_percent)} %"),
        (f"objective: {policy.percentile:g} % within {within}", lambda each: "met" if each.met else "missed"),
        ("most workers", lambda each: f"{each.most_workers:,}"),
        ("pod-hours", lambda each: f"{each.pod_hours:,.3g}"),
        ("slots in use", lambda each: f"{each.busy_percent:.0f} %"),
        ("scale-ups / scale-downs", lambda each: f"{each.ups:,} / {each.downs:,}"),
        ("until all is done", lambda each: seconds(each.done_seconds)),
    ]
    headings = ["SUMMARY", *(f">{each.name.upper()}" for each in sums)]
    return Table(headings, [[name, *(say(each) for each in sums)] for name, say in rows])


def _late(late: Lateness | None) -> str:
    return "-" if late is None else " / ".join(map(seconds, late))


def _percent(share: float) -> str:
    """Return two digits after the point at most, and never 100 for less."""
    return f"{int(share * 100) / 100:g}"


def _view(run: Run, each: Summary, start: float | None) -> dict[str, Any]:
    found = stretches(run, evenly(run.end, step_seconds(run.end, MOST_STRETCHES)), run.end)
    return {
        "by": run.name,
        **instant("start", None if start is None else _ms(start)),
        "tasks": each.tasks,
        "early": each.early,
        "late_ms": _late_view(each.late),
        "in_time_percent": round(each.in_time_percent, 3),
        "objective_met": each.met,
        "most_workers": each.most_workers,
        "pod_hours": round(each.pod_hours, 3),
        "busy_percent": round(each.busy_percent, 3),
        "done_ms": _ms(each.done_seconds),
        "changes": [_change_view(change) for change in run.changes],
        "stretches": [_stretch_view(one) for one in found],
    }


def _change_view(change: Change) -> dict[str, Any]:
    return {
        "at_ms": _ms(change.at),
        "before": change.before,
        "after": change.after,
        "decision": _reason(change) or None,
    }


def _stretch_view(one: Stretch) -> dict[str, Any]:
    return {
        "at_ms": _ms(one.start),
        "span_ms": _ms(one.seconds),
        "fell_due": one.due,
        "late_ms": _late_view(one.late),
        "overdue": one.look.overdue,
        "in_flight": one.look.in_flight,
        "workers": one.look.replicas,
        "ready": one.look.ready,
        "leaving": one.look.leaving,
    }


def _late_view(late: Lateness | None) -> dict[str, int] | None:
    return None if late is None else {"p50": _ms(late.p50), "p99": _ms(late.p99), "max": _ms(late.worst)}


def _ms(value: float) -> int:
    return round(value * 1000)


def draw(runs: Sequence[Run], policy: Policy, start: float | None, path: str) -> None:
    """Draw the chart into a PNG."""
    from benchmarks.simulation.picture import draw as drawn  # noqa: PLC0415 -- matplotlib takes half a second

    drawn(runs, policy, path, clock(start, max(run.end for run in runs)))
    note(f"wrote {path}")
