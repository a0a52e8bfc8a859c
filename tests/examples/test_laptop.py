"""docs/tutorials/laptop.md: its document, its handler and its commands, in order, say what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.examples.running import blocks
from tests.processes import DELAYQ, Process, running

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "laptop.md").read_text()
[DOCUMENT] = blocks(PAGE, "yaml")
HANDLER, PROGRAM, CORRECTION = blocks(PAGE)
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ (delayq .+)$", PAGE, re.MULTILINE)]


def typed(folder: Path, *words: str) -> str:
    """Run the page's command that begins with these words, and return what it prints."""
    [command] = [each for each in COMMANDS if each[1 : 1 + len(words)] == [*words]]
    done = subprocess.run([DELAYQ, *command[1:]], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@contextmanager
def queue(folder: Path) -> Iterator[Process]:
    """The first terminal: `delayq run`, until Ctrl-C."""
    with running(DELAYQ, "run", "queue.yaml", cwd=folder) as run:
        run.wait_line(r"worker +32 slots, handler mail\.reminders:remind")
        yield run
        run.send(signal.SIGINT)
        assert run.wait() == 0, run.output


def test_the_tutorial_works_as_it_stands(tmp_path: Path) -> None:
    handler = tmp_path / "mail" / "reminders.py"
    handler.parent.mkdir()
    handler.write_text(HANDLER)
    (tmp_path / "queue.yaml").write_text(DOCUMENT)
    assert typed(tmp_path, "validate") == "queue.yaml: valid\n"
    with queue(tmp_path) as run:
        assert typed(tmp_path, "schedule", "queue.yaml", '{"to": "ada@example.com"}').endswith("(in 3s)\n")
        run.wait_line(r"reminded ada@example\.com, attempt 1")
        (tmp_path / "plan.py").write_text(PROGRAM)
        export = re.findall(r"^export DELAYQ_REDIS_URL=.*\npython plan\.py$", PAGE, re.MULTILINE)
        subprocess.run(["bash", "-ec", *export], cwd=tmp_path, env={**os.environ, "PATH": PATH}, check=True)
        run.wait_line(r"reminded bob@example\.com, attempt 1")
        [curl] = re.findall(r"^curl .*\\\n.+$", PAGE, re.MULTILINE)
        address = run.wait_line("^api +http://").split()[-1].removesuffix("/v1alpha1")  # 8090 may be taken
        here = curl.replace("http://127.0.0.1:8090", address)
        subprocess.run(["bash", "-ec", here], cwd=tmp_path, check=True, stderr=subprocess.DEVNULL)
        run.wait_line(r"reminded eve@example\.com, attempt 1")
        assert "scheduled wrong-1" in typed(tmp_path, "schedule", "queue.yaml", '{"to": "nowhere"}')
        run.wait_line(r"buried.* task_id=wrong-1 attempt=3 reason=attempts")
        assert len(re.findall("handler_failed", run.output)) == 3
        assert "ValueError: nowhere is not an address" in typed(tmp_path, "dlq", "groups")
        assert re.search(r"^reason +attempts$", typed(tmp_path, "dlq", "get"), re.MULTILINE)
    handler.write_text(re.sub(r"^ +raise .*\n", CORRECTION, HANDLER, flags=re.MULTILINE))
    with queue(tmp_path) as run:
        assert typed(tmp_path, "dlq", "redrive") == "redrove 1 task, due at once\n"
        run.wait_line(r"reminded nowhere@example\.com, attempt 1")
