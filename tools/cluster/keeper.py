"""A cluster in the background: the process that keeps it, and how it is started and stopped."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

from tests.cluster.harness import kubeconfig
from tests.cluster.harness.binaries import ROOT
from tests.node.harness import images, leftovers, owners
from tests.node.harness.node import Node, tell
from tests.node.harness.sandbox import Sandbox
from tools.cluster import demo
from tools.cluster.state import Keeper, State
from tools.cluster.waiting import waiting

if TYPE_CHECKING:
    from pathlib import Path

POLL_SECONDS: Final = 0.1
STOP_SECONDS: Final = 60.0
KILLED_SECONDS: Final = 10.0
REPORT_SECONDS: Final = 10.0


class KeeperError(Exception):
    """The cluster did not come up, or does not go; the message says where to look."""


def up(state: State, *, bare: bool) -> bool:
    """Bring a cluster up and leave it running; False when it is up already."""
    if (keeper := state.keeper()) is not None and keeper.ready:
        return False
    if keeper is None:
        _clear(state)
        state.dir.mkdir(parents=True)
        _spawn(state, bare=bare)
    try:
        _follow(state)
    except KeyboardInterrupt:
        down(state)
        raise
    return True


def _spawn(state: State, *, bare: bool) -> None:
    command = [
        sys.executable,
        "-m",
        "tools.cluster",
        "keep",
        f"--state={state.dir}",
        *(["--bare"] if bare else []),
    ]
    with state.progress.open("wb") as log:
        popen = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    while state.keeper() is None and popen.poll() is None:
        time.sleep(POLL_SECONDS)
    popen.returncode = popen.returncode or 0  # it outlives this process, and Popen must not warn of that


def _follow(state: State) -> None:
    """Pass on what the keeper says, until the cluster is ready."""
    with state.progress.open() as progress:
        while True:
            keeper = state.keeper()  # before what it said last is read
            if said := progress.read():
                sys.stderr.write(said)
                sys.stderr.flush()
            if keeper is None:
                raise KeeperError(f"the cluster did not come up; logs: {state.dir}")
            if keeper.ready:
                return
            time.sleep(POLL_SECONDS)


def load(state: State, archives: list[Path]) -> list[str]:
    """Bring images to a cluster that is up; returns their names."""
    keeper = state.keeper()
    if keeper is None or not keeper.ready:
        raise KeeperError("there is no cluster: run make cluster first")
    sandbox = Sandbox(None, keeper.sandbox)
    return [name for archive in archives for name in images.load(sandbox, archive, keeper.snapshotter)]


def down(state: State) -> bool:
    """Remove a cluster, and what killed ones left; False when there was nothing to remove."""
    keeper = state.keeper()
    if keeper is not None:
        _end(keeper)
    left = leftovers.sweep()
    for each in left:
        tell(f"removed what a killed run had left: {each}")
    return _clear(state) or keeper is not None or bool(left)


def _end(keeper: Keeper) -> None:
    if _ended(keeper, signal.SIGTERM, STOP_SECONDS):
        return
    tell(f"process {keeper.pid} did not stop within {STOP_SECONDS:g} s: killing it")
    if not _ended(keeper, signal.SIGKILL, KILLED_SECONDS):
        raise KeeperError(f"process {keeper.pid} does not end, although it was killed: is a disk away?")


def _ended(keeper: Keeper, number: signal.Signals, within: float) -> bool:
    with suppress(ProcessLookupError):  # it ended meanwhile
        os.kill(keeper.pid, number)
    began = reported = time.monotonic()
    while keeper.alive and (now := time.monotonic()) < began + within:
        if now - reported > REPORT_SECONDS:
            reported = now
            tell(f"still stopping after {now - began:.0f} s: {waiting(keeper.pid)}")
        time.sleep(POLL_SECONDS)
    return not keeper.alive


def _clear(state: State) -> bool:
    there = state.dir.exists()
    with suppress(FileNotFoundError):
        shutil.rmtree(state.dir)
    return there


def keep(state: State, *, bare: bool) -> None:
    """Hold a cluster until SIGTERM or Ctrl-C; what `up` runs in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (state.dir / "lock").open("w") as lock:
        _only_one(lock, state.dir)
        pid = os.getpid()
        began = owners.started(pid)
        assert began is not None
        state.write(Keeper(pid, began, ready=False))
        with suppress(KeyboardInterrupt):
            node = Node.start(leftovers.new_run_dir(), logs=state.logs)
            try:
                _offer(state, node)
                if not bare:
                    demo.install(node)
                state.write(
                    Keeper(pid, began, ready=True, sandbox=node.sandbox.pid, snapshotter=node.snapshotter)
                )
                signal.pause()
            finally:
                node.stop()


def _only_one(lock: IO[str], directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise KeeperError(f"{directory}: another process is starting a cluster there") from None


def _offer(state: State, node: Node) -> None:
    """Write the administrator's kubeconfig where `up` says that it is."""
    cluster = kubeconfig.cluster_of(node.cluster.kubeconfig)
    kubeconfig.write(
        state.kubeconfig, cluster=cluster, token=node.cluster.admin_token, namespace=demo.NAMESPACE
    )
