"""How many workers a queue needs: one pure decision and its input. docs/explanation/scaling.md has the formulas.

Standard library only, no I/O, no clock: the operator calls it every other second, a simulation in virtual time.
"""

from delayq.scaling.decide import decide
from delayq.scaling.decision import LIMITS, Decision, Reason, Shortfall
from delayq.scaling.learning import HandlerTime, KindTimes, LeadTime
from delayq.scaling.memory import Memory, begun
from delayq.scaling.policy import Limit, Policy
from delayq.scaling.record import recorded, replayed
from delayq.scaling.sample import Sample, horizons
from delayq.scaling.sentences import sentence

__all__ = [
    "LIMITS",
    "Decision",
    "HandlerTime",
    "KindTimes",
    "LeadTime",
    "Limit",
    "Memory",
    "Policy",
    "Reason",
    "Sample",
    "Shortfall",
    "begun",
    "decide",
    "horizons",
    "recorded",
    "replayed",
    "sentence",
]
