"""README.md: its App, its document and its commands work as they stand."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tests.examples.running import ROOT, blocks, done, served, write
from tests.processes import DELAYQ

if TYPE_CHECKING:
    from pathlib import Path

README = (ROOT / "README.md").read_text()


def test_the_queue_of_the_readme_runs_what_a_command_curl_and_a_program_schedule(tmp_path: Path) -> None:
    [app] = blocks(README)
    [document] = blocks(README, "yaml")
    [command] = re.findall(
        r"^delayq schedule queue\.yaml '(.+)' --kind report --in 2s$", README, re.MULTILINE
    )
    [curl] = re.findall(r"^curl .+$", README, re.MULTILINE)
    [export] = re.findall(r"^export .+$", README, re.MULTILINE)
    [call] = re.findall(r"`(report\.options\(.+\)\.schedule_sync\(.+\))`", README)
    write(tmp_path, {"queue.yaml": document, "tasks.py": app})
    with served(tmp_path) as run:
        done(DELAYQ, "schedule", "queue.yaml", command, "--kind", "report", cwd=tmp_path)
        run.wait_line("report of us")
        address = run.wait_line("^api +http://").split()[-1].removesuffix("/v1alpha1")  # 8090 may be taken
        here = curl.replace("http://127.0.0.1:8090", address)
        assert '"outcome":"created"' in done("sh", "-c", here, cwd=tmp_path)
        run.wait_line("report of eu")
        program = f"from tasks import report; {call}"
        done("sh", "-c", f'{export} && exec "$0" -c "$1"', sys.executable, program, cwd=tmp_path)
        assert "report:us" in done(DELAYQ, "task", "list", "queue.yaml", cwd=tmp_path)
        assert "0 3 * * * Europe/Lisbon" in done(DELAYQ, "cron", "list", "queue.yaml", cwd=tmp_path)
