"""What a program on a Mac imports needs no Linux; see tests/macos.py for what that says."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import macos

if TYPE_CHECKING:
    from pathlib import Path

CLIENT = """
import delayq
for name in delayq.__all__:
    getattr(delayq, name)
"""
COMMANDS = """
import delayq.local.child
from delayq.cli.root import COMMANDS, load
for name in COMMANDS:
    about = load(name).help or ""
    assert not about.startswith("Needs "), about
"""


@pytest.mark.parametrize("source", [CLIENT, COMMANDS], ids=["client", "commands"])
def test_client_app_and_commands_are_imported_without_what_only_linux_has(
    tmp_path: Path, source: str
) -> None:
    check = f"import os, select, sys\n{source}\nassert not hasattr(select, 'epoll')\nprint(sys.platform)"
    env = os.environ | macos.environment(tmp_path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", check], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("darwin\n", "")
