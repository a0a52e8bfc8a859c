"""examples/several: what its README, its compose file and its unit run, works."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from delayq.client.document import read_all

from tests.processes import DELAYQ, Process, running

if TYPE_CHECKING:
    from tests.servers import RedisServer

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "several"
README = (EXAMPLE / "README.md").read_text()
UNIT = EXAMPLE / "delayq.service"
COMPOSE = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
LONGEST_DRAIN = max(
    each.queue.spec.worker.drain_timeout_seconds for each in read_all([EXAMPLE / "queues.yaml"])
)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns(".delayq", "__pycache__")
    return shutil.copytree(EXAMPLE, tmp_path / "several", ignore=ignore)


def follow(example: Path, run: Process, env: dict[str, str]) -> None:
    """The README's second terminal, and what it promises for the first one."""
    second = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[1]
    commands = [shlex.split(line) for line in second.splitlines() if line.startswith("delayq ")]
    shown = ""
    for _, *words in commands:
        argv = [DELAYQ, *words]
        shown = subprocess.run(
            argv, cwd=example, env=os.environ | env, capture_output=True, text=True, check=True
        ).stdout
    assert "reminders" in shown.splitlines()[0]
    assert "reports" in shown.splitlines()[0]
    [lines] = re.findall(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    for line in lines.splitlines():
        run.wait_line(f"^{re.escape(line)}$")


def ends(run: Process) -> None:
    """As systemd and compose do it: one SIGTERM to the main process."""
    run.send(signal.SIGTERM)
    assert run.wait(timeout_s=40) == 0, run.output


def test_the_readme_works_as_it_stands(example: Path) -> None:
    with running(DELAYQ, "run", "queues.yaml", cwd=example) as run:
        run.wait_line(r"^reports +worker   32 slots, handler shop.reports:send$")
        follow(example, run, {"DELAYQ_CONFIG": "queues.yaml"})
        ends(run)


def test_the_commands_of_the_compose_file_and_of_the_unit_run_and_end_in_time(
    example: Path, aof_server: RedisServer, tmp_path: Path
) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    unit.read(UNIT)
    systemd, compose = unit["Service"], COMPOSE["services"]["delayq"]
    here = {
        "/opt/delayq/bin/delayq": DELAYQ,
        "/srv/shop/queues.yaml": str(example / "queues.yaml"),
        **dict.fromkeys(("redis://127.0.0.1:6379/0", "redis://redis:6379/0"), aof_server.url),
        **dict.fromkeys(("/var/lib/delayq", "/tmp/delayq"), str(tmp_path / "data")),  # noqa: S108 -- of a container
    }
    for words, grace in (
        ([DELAYQ, *compose["command"]], compose["stop_grace_period"].removesuffix("s")),
        (shlex.split(systemd["ExecStart"]), systemd["TimeoutStopSec"]),
    ):
        with running(*(here.get(word, word) for word in words), cwd=example) as run:
            run.wait_line(r"^reports +worker   32 slots")
            if "--metrics-port" in words:
                assert b"delayq_shard_leader" in run.wait_http("http://127.0.0.1:9102/metrics")
            ends(run)
        assert int(grace) > LONGEST_DRAIN
    assert systemd["KillMode"] == "mixed", "or systemd would signal the workers beside the run"
    copied = re.findall(r"^COPY (\S+)", (EXAMPLE / "Dockerfile").read_text(), re.MULTILINE)
    assert {"queues.yaml", "shop"} == {*copied}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """With programs and directories that are there."""
    text = (
        UNIT.read_text()
        .replace("/opt/delayq/bin/delayq", "/bin/true")
        .replace("/srv/shop\n", f"{tmp_path}\n")
    )
    (tmp_path / UNIT.name).write_text(text.replace("User=delayq", "User=root"))
    argv = ["systemd-analyze", "verify", str(tmp_path / UNIT.name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert UNIT.name not in done.stdout + done.stderr
