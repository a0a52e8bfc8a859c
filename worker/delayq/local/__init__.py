"""`delayq run`: a whole queue on one machine, as subprocesses of one supervisor, on a Redis of its own unless told."""

from delayq.local.errors import CannotRun
from delayq.local.plan import Plan
from delayq.local.store import SPEC
from delayq.local.supervisor import run

__all__ = ["SPEC", "CannotRun", "Plan", "run"]
