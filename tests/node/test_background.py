"""`make cluster` and `make cluster-down`: what runs in the background comes back after a kill, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.waiting import eventually
from tests.node.harness import cgroups, leftovers, owners, pause
from tools.cluster.state import Keeper, State

if TYPE_CHECKING:
    from pathlib import Path

START_SECONDS = 300
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def alive(keeper: Keeper) -> bool:
    """Whether the first process of its namespaces is: the kernel ends all others in there with it."""
    return owners.started(keeper.sandbox) is not None


def traces(pid: int) -> list[str]:
    """Directories and cgroups of a process."""
    own = owners.prefix(pid)
    return [each.name for each in leftovers.NODES.glob(f"{own}*")] + sorted(cgroups.existing(own))


def cluster(command: str, state: State, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tools.cluster", command, *args, f"--state={state.dir}", "--bare"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
    )
    return done.stdout


def test_a_cluster_in_the_background_comes_stays_comes_back_after_a_kill_and_goes(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    try:
        assert str(state.kubeconfig) in cluster("up", state)
        keeper = state.keeper()
        assert keeper is not None
        assert "up already" in cluster("up", state)
        assert cluster("load", state, str(pause.write(tmp_path / "pause.tar"))).strip() == pause.IMAGE
        assert alive(keeper)
        os.kill(keeper.pid, signal.SIGKILL)
        eventually(lambda: not alive(keeper), what="it dies with its keeper")
        assert "up already" not in cluster("up", state)
        second = state.keeper()
        assert second is not None
        assert traces(keeper.pid) == []
        assert alive(second)
        assert "is gone" in cluster("down", state)
        assert not alive(second)
        assert traces(second.pid) == []
        assert not state.dir.exists()
    finally:
        cluster("down", state)
