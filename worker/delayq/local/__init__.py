"""`delayq run`: the processes of queues, as subprocesses of one supervisor, with an embedded or an external Redis."""

from delayq.local.errors import CannotRun
from delayq.local.plan import SPEC, Plan, Served, check_redis
from delayq.local.supervisor import run

__all__ = ["SPEC", "CannotRun", "Plan", "Served", "check_redis", "run"]
