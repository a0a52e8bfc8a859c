"""The schedules of an App are read in a process of their own: its output and its failures."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from delayq.local import app_schedules
from delayq.local.app_schedules import NotRead, read
from delayq.local.process import Command

if TYPE_CHECKING:
    from pathlib import Path

APP = """
print("imported")
from delayq import App

app = App()

@app.schedule(every="90s", payload={"region": "eu"})
@app.task
def poll(region: str) -> None: ...
"""


def command(directory: Path, path: str) -> Command:
    python = (sys.executable, "-P", "-m", app_schedules.MODULE, str(os.getpid()), str(directory))
    return Command((*python, "shop", path), os.environ)


async def test_what_the_app_prints_is_not_taken_for_its_schedules(tmp_path: Path) -> None:
    """Its thread does not keep the process. Beside modules with names of the standard library, as in `delayq run`."""
    thread = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    (tmp_path / "polling.py").write_text(thread + APP)
    for name in ("queue.py", "zoneinfo.py", "heapq.py"):
        (tmp_path / name).write_text("raise RuntimeError('not me')\n")
    owner, [schedule] = await read(command(tmp_path, "polling:app"))
    assert owner == "app/polling:app"
    assert (schedule.metadata.name, schedule.spec.every_seconds) == ("poll", 90)
    assert (schedule.spec.queue_ref.name, schedule.spec.task.payload) == ("shop", '{"region":"eu"}')


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("1 / 0", "importing .* failed: ZeroDivisionError"),
        (APP.replace("region: str", "region: int"), "schedule poll of task poll: payload: expected"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
        ("import os; os._exit(3)", "an import must not end the process"),
        (
            "import os; os.write(1, b'five\\n'); os.execlp('true', 'true')",
            'the process that imports it printed "five"',
        ),
    ],
)
async def test_an_app_that_cannot_be_imported_is_an_error_with_its_reason(
    tmp_path: Path, code: str, why: str
) -> None:
    (tmp_path / "broken.py").write_text(code)
    with pytest.raises(NotRead, match=why):
        await read(command(tmp_path, "broken:app"))
