"""The installed command as a process: exit codes, Ctrl-C, closed pipes, a terminal. Speed is not the question."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes import DELAYQ, running

if TYPE_CHECKING:
    from tests.servers import RedisServer

pytestmark = pytest.mark.slow

RIGHT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: 127.0.0.1, port: 1}}
  handler: {python: {callable: "shop.orders:cancel_unpaid"}}
"""


def delayq(*args: str, cwd: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"DELAYQ_REDIS_URL": url}
    return subprocess.run(
        [DELAYQ, *args], cwd=cwd, env=env, input="", capture_output=True, text=True, timeout=60, check=False
    )


def test_exit_codes_are_those_of_the_page(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(RIGHT)
    (tmp_path / "wrong.yaml").write_text("kind: DelayQueue")
    codes = {
        0: delayq("schedule", "orders", "1", "--id", "a", cwd=tmp_path, url=redis_url),
        2: delayq("schedule", "orders", "{", cwd=tmp_path, url=redis_url),
        3: delayq("status", "wrong.yaml", cwd=tmp_path, url=redis_url),
        4: delayq("status", "orders", cwd=tmp_path),
        5: delayq("schedule", "orders", "1", "--id", "a", cwd=tmp_path, url=redis_url),
        6: delayq("task", "get", "orders", "nope", cwd=tmp_path, url=redis_url),
    }
    assert {code: done.returncode for code, done in codes.items()} == {code: code for code in codes}
    assert not any("Traceback" in done.stderr for done in codes.values())


@pytest.mark.parametrize(
    ("args", "more"),
    [
        (["schedule", "orders", '{"order": 7}', "--in", "30m"], ""),
        (["schedule", "orders", "--many", "tasks.jsonl"], ""),
        (["forecast", "queue.yaml"], "; in a cluster: kubectl dq forecast orders"),
    ],
)
def test_an_unreachable_redis_is_one_sentence_and_what_to_do(
    tmp_path: Path, args: list[str], more: str
) -> None:
    (tmp_path / "queue.yaml").write_text(RIGHT)
    (tmp_path / "tasks.jsonl").write_text('{"payload": 1, "in": "1m"}\n' * 3)
    done = delayq(*args, cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr == (
        "error: cannot reach Redis at 127.0.0.1:1 (connection refused)\n"
        f"hint:  delayq doctor queue.yaml checks each requirement{more}\n"
    )


def test_ctrl_c_ends_with_130_and_no_trace(redis_url: str, tmp_path: Path) -> None:
    argv = (DELAYQ, "status", "orders", "--watch", "--interval", "100ms")
    with running(*argv, env={"DELAYQ_REDIS_URL": redis_url}, cwd=tmp_path) as process:
        process.wait_line("^orders ")
        process.send(signal.SIGINT)
        assert process.wait() == 130
        assert "Traceback" not in process.output


@pytest.mark.parametrize(
    "args",
    [["status", "orders", "--watch", "--interval", "100ms"], ["crd"], ["explain", "spec", "-o", "json"]],
)
def test_a_closed_pipe_ends_quietly(redis_url: str, tmp_path: Path, args: list[str]) -> None:
    reader, writer = os.pipe()
    env = os.environ | {"DELAYQ_REDIS_URL": redis_url}
    with subprocess.Popen(
        [DELAYQ, *args], stdout=writer, stderr=subprocess.PIPE, env=env, cwd=tmp_path
    ) as process:
        os.close(writer)
        os.close(reader)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (141, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_trouble(redis_url: str, tmp_path: Path, closed: str) -> None:
    command = f"{DELAYQ} status orders {closed}; exec {DELAYQ} schedule orders - {closed}"
    env = os.environ | {"DELAYQ_REDIS_URL": redis_url}
    done = subprocess.run(
        ["sh", "-c", command], env=env, input=b"1", capture_output=True, cwd=tmp_path, check=False
    )
    assert done.returncode == (2 if "<&-" in closed else 0)  # nothing is no JSON
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("args", [["nonsense"], ["status", "/none.yaml"], []])
def test_closed_errors_end_quietly_too(tmp_path: Path, args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([DELAYQ, *args], stdout=writer, stderr=writer, cwd=tmp_path, check=False)
    os.close(writer)
    assert done.returncode == 141


def test_a_full_disk_is_told(redis_url: str, tmp_path: Path) -> None:
    env = os.environ | {"DELAYQ_REDIS_URL": redis_url}
    argv = [DELAYQ, "status", "orders"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, env=env, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (1, b"error: No space left on device\n")


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_fills_a_terminal_and_ends_with_a_key(
    redis_server: RedisServer, tmp_path: Path, key: bytes
) -> None:
    ours, theirs = pty.openpty()
    env = os.environ | {"DELAYQ_REDIS_URL": redis_server.url, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    argv = ["setsid", "--ctty", "--wait", DELAYQ, "top", "orders"]
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=tmp_path) as process:
        os.close(theirs)
        try:
            seen = read_until(ours, b"due in 1h")
            os.write(ours, key)
            assert process.wait(20) == (0 if key == b"q" else 130)
        finally:
            process.kill()
            os.close(ours)
    assert b"Traceback" not in seen


def read_until(terminal: int, wanted: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + 20
    while wanted not in seen and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65_536)
    assert wanted in seen
    return seen


def test_what_delayq_run_left_is_found_by_schedule(redis_server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(RIGHT)
    (tmp_path / ".delayq").mkdir()
    (tmp_path / ".delayq/redis.url").write_text(redis_server.url + "\n")
    done = delayq("schedule", "queue.yaml", '{"order": 7}', "--in", "30m", "--id", "order-7", cwd=tmp_path)
    assert done.stderr == "note: using the Redis of the running delayq run (.delayq/redis.url)\n"
    assert done.stdout.startswith("scheduled order-7, due ")
    assert done.returncode == 0
