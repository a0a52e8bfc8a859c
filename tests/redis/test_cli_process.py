"""The installed command as a process: exit codes, Ctrl-C, closed pipes, a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.processes import DELAYQ, running
from tests.redis.commands import document

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def delayq(*args: str, url: str = "", **streams: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
    env = os.environ | {"DELAYQ_REDIS_URL": url}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [DELAYQ, *args], env=env, text=True, timeout=60, check=False, **streams
    )
    return done


@pytest.mark.parametrize(
    ("args", "more"),
    [
        (["schedule", "orders", "--many", "tasks.jsonl"], ""),
        (["forecast", "queue.yaml"], "; in a cluster: kubectl dq forecast orders"),
    ],
)
def test_an_unreachable_redis_is_one_sentence_and_what_to_do(here: Path, args: list[str], more: str) -> None:
    document(here, 1)
    Path("tasks.jsonl").write_text('{"payload": 1, "in": "1m"}\n' * 3)
    done = delayq(*args)
    assert done.returncode == 4
    assert done.stderr == (
        "error: cannot reach Redis at 127.0.0.1:1 (connection refused)\n"
        f"hint:  delayq doctor queue.yaml checks each requirement{more}\n"
    )


def test_ctrl_c_ends_with_130_and_no_trace(redis_url: str, here: Path) -> None:
    argv = (DELAYQ, "status", "orders", "--watch", "--interval", "100ms")
    with running(*argv, env={"DELAYQ_REDIS_URL": redis_url}, cwd=here) as process:
        process.wait_line("^orders ")
        process.send(signal.SIGINT)
        assert process.wait() == 130
        assert "Traceback" not in process.output


@pytest.mark.parametrize(
    ("args", "errors"),
    [
        (["status", "orders", "--watch", "--interval", "100ms"], False),
        (["crd"], False),
        (["nonsense"], True),
        ([], True),
    ],
)
def test_a_closed_pipe_ends_quietly(redis_url: str, args: list[str], *, errors: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = delayq(*args, url=redis_url, stdout=writer, stderr=writer if errors else subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, None if errors else "")


@pytest.mark.parametrize(("closed", "code"), [("2>&-", 0), ("<&- >&- 2>&-", 2)])
def test_a_closed_stream_is_no_trouble(redis_url: str, closed: str, code: int) -> None:
    """Without stdin there is no JSON to schedule."""
    command = f"{DELAYQ} status orders {closed}; exec {DELAYQ} schedule orders - {closed}"
    env = os.environ | {"DELAYQ_REDIS_URL": redis_url}
    done = subprocess.run(["sh", "-c", command], env=env, input=b"1", capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False)


def test_a_full_disk_is_reported(redis_url: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = delayq("status", "orders", url=redis_url, stdout=full)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_fills_a_terminal_and_ends_with_a_key(redis_url: str, key: bytes) -> None:
    ours, theirs = pty.openpty()
    env = os.environ | {"DELAYQ_REDIS_URL": redis_url, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    argv = ["setsid", "--ctty", "--wait", DELAYQ, "top", "orders"]
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        try:
            seen = read_until(ours, b"due in 1h")
            os.write(ours, key)
            assert process.wait(60) == (0 if key == b"q" else 130)
        finally:
            process.kill()
            os.close(ours)
    assert b"Traceback" not in seen


def read_until(terminal: int, wanted: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + 60
    while wanted not in seen and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65_536)
    assert wanted in seen
    return seen
