"""`delayq run --reload`: new code is used when it can start, and no task is lost or charged for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.process.local_home import HANDLERS, QUEUE, Home, stopped, until
from tests.processes import DELAYQ

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


READY = '"event": "ready"'
GOES_ON = r"^run \| not reloaded, the old processes go on:"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    home.dir.mkdir()
    home.write()
    yield home
    home.wait_gone()


def save(home: Home, source: str, file: str = "shop_handlers.py") -> None:
    """Replace the file, as editors do."""
    new = home.dir / f"{file}.tmp"
    new.write_text(source)
    new.replace(home.dir / file)


def handle(home: Home, task_id: str) -> None:
    with home.client() as client:
        client.schedule({}, task_id=task_id, delay_ms=0)
    home.wait_handled(task_id)


def written(home: Home) -> list[str]:
    return (home.dir / "handled").read_text().splitlines()


def test_running_handlers_finish_with_the_old_code_and_an_error_stops_nothing(home: Home) -> None:
    newer = HANDLERS.replace("{task.attempt}", "{task.attempt} newer")
    with stopped(home.ready("--reload", "--no-reaper")) as run:
        url = home.url
        handle(home, "before")

        save(home, newer.replace("import asyncio, os", "import asyncio, os\nasyncio.sleeep"))
        run.wait_line(GOES_ON)
        said = run.wait_line("AttributeError")
        assert f"{home.dir / 'queue.yaml'}, line 6: spec.handler.python.callable: importing" in said
        assert "shop_handlers.py line 2)" in said
        assert "Traceback" not in run.output
        handle(home, "beside")

        with home.client() as client:
            client.schedule({}, task_id="slow", delay_ms=0)
            until((home.dir / "hanging").exists, "started")
            heard = len(run.lines)
            save(home, newer)
            run.wait_line(r"^run \| changed: home/shop_handlers\.py$", after=heard)
            run.wait_line('"event": "drain_started"', after=heard)
            run.wait_line(r"^run \| reloading: waits for running handlers, at most 20 s", after=heard)
            save(home, "raise RuntimeError('saved meanwhile')")
            (home.dir / "released").touch()
            run.wait_line(r"^run \| nothing runs until the next change$", after=heard)
            run.wait_line("RuntimeError: saved meanwhile .*shop_handlers.py line 1", after=heard)
            client.schedule({}, task_id="after", delay_ms=0)
        heard = len(run.lines)
        save(home, newer)
        run.wait_line(READY, after=heard, timeout_s=40)
        home.note(run)
        home.wait_handled("after")
        assert home.url == url, "Redis is the same"
        run.send(signal.SIGTERM)
        assert run.wait(timeout_s=40) == 0
    assert written(home) == ["before 1", "beside 1", "slow 1", "after 1 newer"]


def test_a_changed_document_is_used_and_an_invalid_one_is_named(home: Home) -> None:
    document = QUEUE.replace("HANDLER", "keep")
    with stopped(home.ready("--reload", "--no-reaper")) as run:
        save(home, document.replace("worker:", "wroker:"), "queue.yaml")
        run.wait_line(GOES_ON)
        run.wait_line(r"queue\.yaml: spec\.wroker: unknown field, did you mean worker\?")
        handle(home, "old")
        heard = len(run.lines)
        save(home, document.replace("worker: {", "worker: {replicas: 2, "), "queue.yaml")
        ready = json.loads(run.wait_line(READY, after=heard, timeout_s=40))
        assert ready["processes"] == 3, "two workers now"
        home.note(run)
        handle(home, "new")


def test_without_its_package_the_option_says_what_to_install(home: Home) -> None:
    (home.dir / "sitecustomize.py").write_text("import sys; sys.modules['watchfiles'] = None")
    path = os.pathsep.join(filter(None, (str(home.dir), os.environ.get("PYTHONPATH"))))
    argv = [DELAYQ, "run", "--reload", str(home.dir / "queue.yaml")]
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: watchfiles is not installed: install delayq[reload]\n"
