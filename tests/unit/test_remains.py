"""A run that leaves processes, mounts or interfaces on the machine fails and names them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAVES = """
import subprocess

def test_leaves():
    child = subprocess.Popen(["sleep", "{seconds}"], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    print(child.pid)
"""
PLUGIN = """
from tests import remains

def pytest_configure(config):
    remains.PATIENCE_SECONDS = 1
    config.pluginmanager.register(remains.Remains(config))
"""


def run(folder: Path, *, seconds: int) -> subprocess.CompletedProcess[str]:
    """Play one test, in a pytest of its own, that starts a process and does not wait for it."""
    (folder / "test_leaves.py").write_text(LEAVES.format(seconds=seconds))
    (folder / "conftest.py").write_text(PLUGIN)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-W", "ignore", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_process_that_a_test_left_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, seconds=1000)
    [pid] = [int(line) for line in done.stdout.replace(".", "\n").splitlines() if line.isdigit()]
    os.kill(pid, signal.SIGKILL)
    assert done.returncode == 1
    assert f"process {pid}: sleep 1000" in done.stdout


def test_a_run_that_leaves_nothing_ends_well(tmp_path: Path) -> None:
    done = run(tmp_path, seconds=0)
    assert done.returncode == 0, done.stdout + done.stderr
