"""Change the number of shards of a queue in use. The names below are what others import.

ShardMapSync: a process follows the shard map. ReshardingCoordinator: a scanner proposes the number of shards that its
document wants (DesiredShards), and takes the steps to it. Migrator: a scanner moves the tasks of the shards that it
leads (ScanProgress is how far it is). AbandonedMigrations: a reaper ends what a migrator left behind.
Clients meet a change in delayq.client.routing and delayq.client.placement, which find tasks on their way.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delayq.resharding.coordinator import ANNOUNCE_SECONDS, DesiredShards, ReshardingCoordinator
    from delayq.resharding.migration import ScanProgress
    from delayq.resharding.migrator import AbandonedMigrations, Migrator
    from delayq.resharding.shard_map_sync import ShardMapSync

__all__ = [
    "ANNOUNCE_SECONDS",
    "AbandonedMigrations",
    "DesiredShards",
    "Migrator",
    "ReshardingCoordinator",
    "ScanProgress",
    "ShardMapSync",
]
_MODULES = {
    "ANNOUNCE_SECONDS": "coordinator",
    "AbandonedMigrations": "migrator",
    "DesiredShards": "coordinator",
    "Migrator": "migrator",
    "ReshardingCoordinator": "coordinator",
    "ScanProgress": "migration",
    "ShardMapSync": "shard_map_sync",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- any object of the module
    """Import on first use: a worker follows the shard map, and loads nothing that moves tasks."""
    if name in _MODULES:
        return getattr(import_module(f"delayq.resharding.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'delayq.resharding' has no attribute {name!r}")
