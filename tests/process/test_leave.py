"""A process that leaves at once says first what it had to say."""

from __future__ import annotations

import os
import subprocess
import sys

LEAVING = """
import sys
from delayq.service import shutdown
print("the handler's last word")
sys.stderr.write("and its last error")
shutdown.leave()
"""


def leave(script: str) -> subprocess.CompletedProcess[str]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    argv = [sys.executable, "-c", script]
    return subprocess.run(argv, env=buffered, capture_output=True, text=True, check=True)


def test_what_a_handler_printed_is_not_lost_when_another_ignores_its_cancellation() -> None:
    left = leave(LEAVING)
    assert (left.stdout, left.stderr) == ("the handler's last word\n", "and its last error")


def test_a_closed_stdout_keeps_no_process_from_leaving() -> None:
    assert leave("import os\nos.close(1)\n" + LEAVING).stderr == "and its last error"
