"""Scaling in virtual time: exact tasks, workers that take time to start, and the decision that production makes.

`python -m benchmarks.simulation` shows a simulation; tests hold the decisions on workers against it.
"""

from benchmarks.simulation.pilot import Known, Pilot, Production
from benchmarks.simulation.plant import Plant
from benchmarks.simulation.reactive import Reactive
from benchmarks.simulation.run import Run, TooLong, simulate
from benchmarks.simulation.tasks import Arrival, Tasks, TooMany

__all__ = [
    "Arrival",
    "Known",
    "Pilot",
    "Plant",
    "Production",
    "Reactive",
    "Run",
    "Tasks",
    "TooLong",
    "TooMany",
    "simulate",
]
