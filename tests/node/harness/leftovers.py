"""What a killed run left: directories, empty cgroups, and for a while its interface. All else died with its sandbox."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.cluster.harness.binaries import ROOT
from tests.node.harness import cgroups, network, owners

if TYPE_CHECKING:
    from pathlib import Path

NODES: Final = ROOT / ".cache" / "nodes"
"""Run directories of nodes; of this checkout, and not in /tmp, which may be memory."""


def new_run_dir() -> Path:
    return NODES / owners.new_name()


def sweep() -> list[str]:
    """Remove what belongs to processes that are gone; returns what it was."""
    removed = []
    for directory in NODES.glob(f"{owners.PREFIX}*"):
        if owners.dead(directory.name):
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(str(directory))
    for name in filter(owners.dead, cgroups.existing(owners.PREFIX)):
        if network.disconnect(interface := network.interface_of(name)):
            removed.append(f"network interface {interface}")
        # Of another checkout, perhaps. The kernel removes none that has processes.
        if not cgroups.processes(name):
            with suppress(OSError):
                cgroups.remove(name)
                removed.append(name)
    return removed
