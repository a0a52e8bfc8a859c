"""Who keeps a cluster, and whose leftovers are whose: with processes, and without a node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.node.harness import keeper, leftovers, network, owners
from tests.node.harness.state import Keeper, State

if TYPE_CHECKING:
    from collections.abc import Iterator

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


@pytest.fixture
def deaf() -> Iterator[subprocess.Popen[bytes]]:
    """A keeper that does not hear SIGTERM."""
    process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr(leftovers, "NODES", tmp_path / "nodes")
    state = State(tmp_path / "cluster")
    state.dir.mkdir()
    return state


def test_a_keeper_that_does_not_stop_is_killed_and_that_is_said_once(
    deaf: subprocess.Popen[bytes],
    state: State,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(keeper, "STOP_SECONDS", 0.3)
    began = owners.started(deaf.pid)
    assert began is not None
    state.write(Keeper(deaf.pid, began, ready=True))
    assert keeper.down(state)
    assert deaf.wait() == -signal.SIGKILL
    said = capsys.readouterr().err
    assert said.count(f"process {deaf.pid} did not stop within 0.3 s: killing it") == 1
    assert not state.dir.exists()


def test_a_keeper_that_ends_before_it_is_told_to_is_no_error(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    late = Keeper(gone.pid, 1, ready=True)
    monkeypatch.setattr(State, "keeper", lambda _: late)
    assert keeper.down(state)


def test_what_a_dead_process_left_is_removed_and_what_another_container_has_is_not(state: State) -> None:
    """There, the same number is another process: nothing can be known of it."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mine, namespace = owners.new_name(), Path("/proc/self/ns/pid").stat().st_ino
    left = f"{owners.prefix(gone.pid)}7-0"
    theirs = left.replace(str(namespace), str(namespace + 1))
    for name in (mine, left, theirs):
        (leftovers.NODES / name).mkdir(parents=True)
    assert str(leftovers.NODES / left) in leftovers.sweep()
    assert {each.name for each in leftovers.NODES.iterdir()} == {mine, theirs}
    assert state.dir.exists()


PAIR = """
import subprocess
from tests.node.harness import cgroups, leftovers, network
peer = subprocess.Popen(["unshare", "--net", "--", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
peer.stdout.readline()
name = network.interface_of({left!r})
network._ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(peer.pid))
try:
    cgroups.existing = lambda _prefix: [{left!r}]
    cgroups.processes, cgroups.remove = lambda _name: set(), lambda _name: None
    print([line for line in leftovers.sweep() if name in line], network.disconnect(name))
finally:
    peer.kill()
    peer.wait()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes root: namespaces of networks")
def test_the_interface_of_a_dead_process_goes_though_its_other_end_is_held() -> None:
    """As the kernel holds it while connections in there are being closed."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = f"{owners.prefix(gone.pid)}7-0"
    command = ["unshare", "--net", sys.executable, "-c", PAIR.format(left=left)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"['network interface {network.interface_of(left)}'] False\n", done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="takes root: a namespace of processes")
def test_a_container_does_not_take_the_nodes_of_another_for_dead() -> None:
    name = owners.new_name()
    code = f"from tests.node.harness import owners; print(owners.dead({name!r}), owners.new_name())"
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    taken_for_dead, other = done.stdout.split()
    assert taken_for_dead == "False"
    assert not other.startswith(name.rpartition("-")[0])
    assert owners.dead(other) is False
