"""`make cluster` and `make cluster-down`: what runs in the background comes back after a kill, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.waiting import eventually
from tests.node.harness import cgroups, leftovers, owners, pause
from tests.node.harness.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 300
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def members(pid: int) -> set[tuple[int, int]]:
    """Who is in the namespaces of a node that this process made: numbers on this machine, and when they began."""
    own = owners.prefix(pid)
    spaces = {space for space, line in everybody() if own in line} - {namespace_of(os.getpid())}
    return {
        (each, began) for each in pids() if namespace_of(each) in spaces and (began := owners.started(each))
    }


def everybody() -> Iterator[tuple[str, str]]:
    for pid in pids():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        yield namespace_of(pid), line


def pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").glob("[0-9]*")]


def namespace_of(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def alive(members: set[tuple[int, int]]) -> set[int]:
    return {pid for pid, began in members if owners.started(pid) == began}


def traces(pid: int) -> list[str]:
    """Directories and cgroups of a process."""
    own = owners.prefix(pid)
    return [each.name for each in leftovers.NODES.glob(f"{own}*")] + sorted(cgroups.existing(own))


def cluster(command: str, state: State, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.node", command, *args, f"--state={state.dir}", "--bare"],
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
        inside = members(keeper.pid)
        os.kill(keeper.pid, signal.SIGKILL)
        eventually(lambda: alive(inside) == set(), what="it dies with its keeper")
        assert "up already" not in cluster("up", state)
        second = state.keeper()
        assert second is not None
        assert traces(keeper.pid) == []
        inside = members(second.pid)
        assert alive(inside)
        assert "is gone" in cluster("down", state)
        assert alive(inside) == set()
        assert traces(second.pid) == []
        assert not state.dir.exists()
    finally:
        cluster("down", state)
