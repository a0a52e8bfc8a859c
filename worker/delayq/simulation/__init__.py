"""Scaling in virtual time: exact tasks, workers that take time to start, and the decision that production makes.

Pure, but for reading a file of tasks and the times of a queue's. Used by `delayq simulate` and `delayq forecast`.
"""

from delayq.simulation.pilot import Known, Pilot, Production
from delayq.simulation.plant import Plant
from delayq.simulation.reactive import Reactive
from delayq.simulation.run import Run, TooLong, simulate
from delayq.simulation.tasks import Arrival, Tasks, TooMany

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
