"""Forecast: when tasks fall due, the workers they need, and their lateness with fewer. Pure.

The caller counts tasks in Redis (cli/forecast.py); delayq/scaling has the model.
"""

from delayq.forecast.calendar import DAY_MS, LONGEST_MS, label, offset, spans
from delayq.forecast.histogram import ROUNDS, Bin, Histogram
from delayq.forecast.outlook import Expected, Now, Supply, outlook

__all__ = [
    "DAY_MS",
    "LONGEST_MS",
    "ROUNDS",
    "Bin",
    "Expected",
    "Histogram",
    "Now",
    "Supply",
    "label",
    "offset",
    "outlook",
    "spans",
]
