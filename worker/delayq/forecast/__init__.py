"""What falls due when, how many workers that takes, and how late tasks begin with fewer. Pure.

The caller counts tasks in Redis (cli/forecast.py); the model is that of scaling.
"""

from delayq.forecast.calendar import label, offset, spans
from delayq.forecast.histogram import ROUNDS, Bin, Histogram
from delayq.forecast.outlook import Expected, Now, Supply, outlook

__all__ = [
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
