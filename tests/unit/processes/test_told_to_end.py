"""SIGTERM while a command is being imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

# It sends the signal from the callback of a weak reference, where Python drops any exception.
PROGRAM = """
import os, signal, sys, weakref

class Object: pass

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            last = Object()
            kept = weakref.ref(last, lambda _: os.kill(os.getpid(), signal.SIGTERM))
            del last

os.getpid = lambda real=os.getpid(): 1 if sys._getframe(1).f_code.co_name == "main" else real
sys.meta_path.insert(0, Finder())
sys.argv = ["the command", "--help"]
from {package} import main
main()
"""


@pytest.mark.parametrize(
    ("package", "module", "code"),
    [
        ("delayq.cli", "delayq.cli.root", 143),  # not 0: the Job of `delayq erase` would count as complete
        ("delayq_operator.__main__", "delayq_operator.runtime.cli", 0),
    ],
)
def test_a_signal_during_an_import_ends_the_process(package: str, module: str, code: int) -> None:
    program = PROGRAM.format(package=package, module=module)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")
