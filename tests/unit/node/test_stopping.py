"""A cluster in the background that is slow to stop: what is said meanwhile, without a node."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.node.harness import owners
from tools.cluster import keeper
from tools.cluster.state import Keeper

if TYPE_CHECKING:
    import pytest

DEAF = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", "sleep", "60"]) as below:
    print("deaf", flush=True)
"""


def test_what_takes_long_is_named_before_it_is_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make cluster-down` was silent for a minute, and what it had waited for was gone with the process."""
    monkeypatch.setattr(keeper, "REPORT_SECONDS", 0.3)
    monkeypatch.setattr(keeper, "STOP_SECONDS", 1.0)
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"deaf\n"
        began = owners.started(process.pid)
        assert began is not None
        keeper._end(Keeper(process.pid, began, ready=True))
    said = capsys.readouterr().err
    assert re.search(r"still stopping after \d s: python[\w.]* \(S, \w+\), \w+ \(S, \w+\)", said), said
    assert f"process {process.pid} did not stop within 1 s: killing it" in said
