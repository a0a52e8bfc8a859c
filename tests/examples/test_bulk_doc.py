"""docs/how-to/bulk-operations.md: its programs print what the comments say, and its commands run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.examples.running import blocks
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "bulk-operations.md").read_text()
PROGRAMS = blocks(PAGE)
COMMANDS = "\n".join(blocks(PAGE, "bash")).split("\n")


def test_the_programs_and_the_commands_of_the_page_do_what_it_says(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_URL", redis_url)
    namespace: dict[str, Any] = {}
    for program in PROGRAMS:
        exec(program, namespace)  # noqa: S102 -- our own page
    *_, last = printed = capsys.readouterr().out.splitlines()
    assert [printed[0], printed[1], last] == ["993", "1", "993 0 0"]
    assert len(printed) > 10  # the progress
    exec(PROGRAMS[0], namespace)  # noqa: S102 -- our own page
    outputs = []
    for command in filter(None, COMMANDS):
        result = run(*shlex.split(command)[1:], DELAYQ_REDIS_URL=redis_url)
        assert result.exit_code == 0, result.output
        outputs.append(result.stdout)
    assert outputs == [
        "993 tasks wait\n",
        "would cancel 993 tasks; nothing changed\n",
        "rescheduled 993 tasks by 1d later\n",
        "cancelled 0 tasks\n",
        "redrove 0 tasks, due at once\n",
    ]
