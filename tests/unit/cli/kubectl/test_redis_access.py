"""Commands in a scanner pod, by a program in place of kubectl."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.cli.kubectl.kubectl import VARIABLE, Kubectl, Where
from delayq.cli.kubectl.redis_access import RedisAccess, by_exec
from delayq.cli.kubectl.remote_command import RemoteCommand

if TYPE_CHECKING:
    import pytest

QUEUE = {"metadata": {"namespace": "shop", "name": "orders"}}
STATUS = RemoteCommand(path=("status",), typed=("--",), sent=("--",))


def output_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> bytes:
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    with os.fdopen(theirs, "w") as stdout, Path(os.devnull).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        assert by_exec(Kubectl(Where()), RedisAccess(queue=QUEUE, pod="orders-scanner-0"), STATUS) == 0
        shown = os.read(ours, 4096)
    os.close(ours)
    return shown.replace(b"\r\n", b"\n")


def test_what_a_pod_prints_cannot_control_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nprintf 'due\\t7\\n\\033]0;owned\\007\\302\\2332Jdead\\t0\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(program))
    assert output_on_a_terminal(monkeypatch).decode() == "due\t7\n·]0;owned··2Jdead\t0\n"
