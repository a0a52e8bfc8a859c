"""docs/how-to/schedules.md and schedules-operate.md: their documents, programs and commands do as they say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.examples.running import HOW_TO, blocks, client, done, served, url, write
from tests.process.fleet import until
from tests.processes import DELAYQ

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (HOW_TO / "schedules.md").read_text()
OPERATE = (HOW_TO / "schedules-operate.md").read_text()

LATER = re.compile(r"(?<=, next )\S+")
"""When a schedule is due next depends on the day."""


def commands() -> dict[str, str]:
    """The commands that the pages show, each with what it prints."""
    shown = "".join([*blocks(PAGE, "console"), *blocks(OPERATE, "console")])
    found = re.findall(r"^\$ delayq (.*)\n((?:[^$].*\n)*)", shown, re.MULTILINE)
    return dict(found)


def test_the_schedules_of_the_pages_are_checked_run_and_filled(tmp_path: Path) -> None:
    [reports], [program] = blocks(PAGE), blocks(OPERATE)
    [document] = blocks(PAGE, "yaml")
    write(tmp_path, {"queue.yaml": document, "reports.py": reports})
    shown = commands()
    for command in [each for each in shown if "queue.yaml" in each]:
        said = done(DELAYQ, *command.split(), cwd=tmp_path).strip()
        assert LATER.sub("", said) == LATER.sub("", shown[command].strip()), command
    with served(tmp_path) as run_, client(tmp_path) as shop:
        run_.wait_line("queue.yaml: schedules of reports:app: poll created; report created")
        [run, backfill] = [
            each.replace(" shop ", " queue.yaml ").split() for each in shown if " shop " in each
        ]
        task_id = done(DELAYQ, *run, cwd=tmp_path).split()[-1]
        assert re.fullmatch(r"@nightly-report@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", task_id)
        expected = next(text for command, text in shown.items() if "backfill" in command)
        assert expected.strip() in done(DELAYQ, *backfill, cwd=tmp_path)
        done(DELAYQ, *backfill[:-1], cwd=tmp_path)
        until(lambda: not (shop.counts().due or shop.counts().in_flight), "all tasks have ended")
        assert shop.counts().stats["acked"] >= 4
        assert shop.counts().dead == 0
        assert {each.name: each.owner for each in shop.schedules()} == {
            "nightly-report": "file",
            "poll": "app/reports:app",
            "report": "app/reports:app",
        }
        here = program.replace('"queue.yaml"', f'"queue.yaml", url="{url(tmp_path)}"')
        lines = done("python", "-c", here, cwd=tmp_path).splitlines()
        assert lines[0] == "nightly-report 0 3 * * * Europe/Lisbon report {'region': 'eu'} file"
        assert lines[1].count("zoneinfo.ZoneInfo(key='Europe/Lisbon')") == 3
        assert [each.split()[0] for each in lines[2::2]] == ["poll", "report", lines[-1]]
        assert lines[-1].startswith("@nightly-report@")
    (tmp_path / "reports.py").write_text(
        re.sub(r"^@app.schedule\(every.*\n", "", reports, flags=re.MULTILINE)
    )
    with served(tmp_path) as run_:
        run_.wait_line("queue.yaml: schedules of reports:app: poll deleted.*; report unchanged")
        lines = done(DELAYQ, "cron", "apply", "queue.yaml", cwd=tmp_path).splitlines()
        assert lines[-1] == "report: unchanged"
