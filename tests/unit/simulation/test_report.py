"""Figures and pictures of a simulation."""

from __future__ import annotations

import pytest
from delayq.scaling import Policy

from benchmarks.simulation import Arrival, Known, Plant, Production, Run, Tasks, TooLong, simulate
from benchmarks.simulation.chart import HEIGHT, Panel, chart
from benchmarks.simulation.report import evenly, percentile, step_seconds, stretches, summary
from benchmarks.simulation.run import refuse_too_long
from benchmarks.simulation.series import series

RULES = Policy(slots=10, max_replicas=4, lateness_seconds=1.0, percentile=90.0)


def run() -> Run:
    """Ten tasks at once for one worker, then twenty for one that has ten slots: half of them wait for a handler."""
    tasks = Tasks.of([Arrival(10.0, 2.0, tasks=10), Arrival(20.0, 2.0, tasks=20)])
    pilot = Production(
        Policy(slots=10, min_replicas=1, max_replicas=1), replicas=1, start=0.0, known=Known(2.0, 5.0)
    )
    return simulate(tasks, pilot, Plant(tasks, slots=10, lead_seconds=5.0, replicas=1))


def test_the_summary_adds_up() -> None:
    found = summary(run(), RULES)
    assert found.late is not None
    assert tuple(found.late) == (0.0, 2.0, 2.0)
    assert (found.tasks, found.early, found.most_workers, found.ups, found.downs) == (30, 0, 1, 0, 0)
    assert found.in_time_percent == pytest.approx(200 / 3)
    assert not found.met
    assert found.done_seconds == 14.0
    assert found.pod_hours == pytest.approx(run().end / 3600)
    assert found.busy_percent == pytest.approx(100 * 60 / (run().end * 10))


def test_stretches_hold_every_task_once() -> None:
    found = run()
    cut = stretches(found, [0.0, 10.0, 15.0], found.end)
    assert [(each.due, each.late and each.late.worst) for each in cut] == [(0, None), (10, 0.0), (20, 2.0)]
    assert [(each.look.at, each.look.in_flight) for each in cut] == [(0.0, 0), (10.0, 10), (14.0, 0)]


def test_series_show_the_most_of_each_part() -> None:
    found = series(run(), 30.0, 3)
    assert found.load == [0.0, 1.0, 2.0]
    assert found.late == [0.0, 0.0, 2.0]
    assert (found.ready, found.capacity) == ([1, 1, 1], [5.0, 5.0, 5.0])


def test_percentiles_are_of_the_nearest_rank() -> None:
    ranked = [float(number) for number in range(1, 101)]
    assert [percentile(ranked, each) for each in (1, 50, 99, 99.5, 100)] == [1, 50, 99, 100, 100]
    assert percentile([7.0], 50) == 7.0


def test_steps_are_round_and_few_enough() -> None:
    assert [step_seconds(span, 16) for span in (10, 62, 362, 86_400, 9e6)] == [1, 5, 30, 7200, 604_800]
    assert evenly(65.0, 30.0) == [0.0, 30.0, 60.0]


def test_a_chart_has_its_panels_under_one_another_and_nothing_stands_out() -> None:
    panels = [Panel("load", [0, 1, 8, 4]), Panel("workers", [0, 1, 2, 2], [1, 2, 2, 0])]
    lines = list(chart(panels, [(0, "+0:00"), (2, "+0:20")], 4))
    assert lines[-1].strip() == "+0:00"
    assert len(lines) == 2 * (1 + HEIGHT) + 2
    assert lines[0].strip() == "load"
    assert [line[10:].ljust(4) for line in lines[1:7]] == ["  █ ", "  █ ", "  █ ", "  ██", "  ██", " ▆██"]
    assert lines[-2].strip() == "└┴─┴─"
    assert all(len(line) <= 10 + 20 for line in lines)


def test_what_would_take_hours_to_compute_is_refused_at_once() -> None:
    far, much = Tasks.of([Arrival(1e8, 1.0)]), Tasks.of([Arrival(1.0, 1e6, tasks=1000)])
    for tasks in (far, much):
        with pytest.raises(TooLong, match="expected at most 500,000 decisions"):
            refuse_too_long(tasks, slots=100, period_seconds=2.0)
