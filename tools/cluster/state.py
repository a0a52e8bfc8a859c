"""What is known of a cluster that runs in the background: its kubeconfig, its logs, and who keeps it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests.node.harness import owners

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Keeper:
    """The process that holds a cluster: when it ends, so does the cluster."""

    pid: int
    started: int
    ready: bool
    sandbox: int = 0
    """The first process of its namespaces."""
    snapshotter: str = ""

    @property
    def alive(self) -> bool:
        return owners.started(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class State:
    """Of one cluster."""

    dir: Path

    @property
    def kubeconfig(self) -> Path:
        return self.dir / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.dir / "logs"

    @property
    def progress(self) -> Path:
        """What the keeper says."""
        return self.dir / "keeper.log"

    def write(self, keeper: Keeper) -> None:
        new = self.dir / "keeper.new"
        new.write_text(json.dumps(asdict(keeper)))
        new.replace(self.dir / "keeper.json")

    def keeper(self) -> Keeper | None:
        """The process that keeps it; None if there is none."""
        try:
            found = Keeper(**json.loads((self.dir / "keeper.json").read_text()))
        except FileNotFoundError:
            return None
        return found if found.alive else None
