"""A server is killed and comes back on the same data."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.faults.fault import Fault
from tests.faults.stage import OUTAGE_SECONDS

if TYPE_CHECKING:
    from tests.faults.stage import Stage


def restart_redis(stage: Stage) -> None:
    """Handlers end meanwhile, and cannot say so."""
    servers = stage.some_redis()
    for server in servers:
        server.kill()
    stage.release()
    time.sleep(OUTAGE_SECONDS)
    for server in servers:
        server.launch()


def restart_database(stage: Stage) -> None:
    """Handlers are in the middle of their transaction."""
    stage.postgres.kill()
    stage.release()
    stage.postgres.launch()


REDIS = Fault("redis-restart", "Redis killed and started again (AOF, `always`)", restart_redis, "during")
DATABASE = Fault("database-restart", "database killed and started again", restart_database, "during")
