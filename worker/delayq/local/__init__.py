"""`delayq run`: all processes of a queue as subprocesses of one supervisor, with an embedded or an external Redis."""

from delayq.local.errors import CannotRun
from delayq.local.plan import Plan
from delayq.local.store import SPEC
from delayq.local.supervisor import run

__all__ = ["SPEC", "CannotRun", "Plan", "run"]
