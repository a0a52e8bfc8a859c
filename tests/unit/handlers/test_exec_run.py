"""exec handlers: what a command gets, and what its exit code does to the task."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import Bury, Retry
from delayq.handlers.base import HandlerSetupError
from delayq.handlers.exec import ExecFailed

from tests.unit.handlers.commands import command, shell
from tests.unit.handlers.support import a_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DUMP = "import json, os, sys; json.dump([dict(os.environ), sys.argv[2:]], open(sys.argv[1], 'w'))"


async def test_the_payload_is_on_stdin(tmp_path: Path) -> None:
    body = bytes(range(256)) * 4096
    async with shell('cat > "$1"', str(tmp_path / "stdin")) as handler:
        await handler.call(a_task(body))
    assert (tmp_path / "stdin").read_bytes() == body


async def test_the_task_is_in_the_environment_and_arguments_are_left_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata beside the worker's own variables and the document's; no credential; no shell in between."""
    monkeypatch.setenv("SHOP", "paris")
    for name in ("DELAYQ_SECRET_KEY", "DELAYQ_REDIS_URL", "REDISCLI_AUTH", "REDIS_PASSWORD", "REDIS_URL"):
        monkeypatch.setenv(name, "secret")
    odd = ["$HOME", "a b", "*", "", "é\n"]
    dump = tmp_path / "dump"
    async with command(
        sys.executable, "-c", DUMP, str(dump), *odd, env={"LANGUAGE": "fr", "DELAYQ_QUEUE": "mine"}
    ) as handler:
        await handler.call(a_task(task_id="é", headers={"Tenant": "é\n"}))
    environment, arguments = json.loads(dump.read_text())
    assert arguments == odd
    assert {name: value for name, value in environment.items() if name.startswith(("DELAYQ_", "REDIS"))} == {
        "DELAYQ_ATTEMPT": "2",
        "DELAYQ_CONTENT_TYPE": "application/json",
        "DELAYQ_DUE_MS": "1700000060000",
        "DELAYQ_HEADERS": '{"Tenant":"é\\n"}',
        "DELAYQ_QUEUE": "orders",
        "DELAYQ_SCHEDULED_MS": "1700000000000",
        "DELAYQ_TASK_ID": "é",
        "DELAYQ_TOKEN": "41",
    }
    assert (environment["SHOP"], environment["LANGUAGE"]) == ("paris", "fr")


@pytest.mark.parametrize(
    "headers",
    [
        {"Name": "é" * 32_000},  # escapes would triple it
        {"a": "\x01" * 21_841},  # escapes cannot be avoided: as large as fits
        {"Name": "\ud800"},  # another program wrote it: UTF-8 does not have it
    ],
)
async def test_large_and_odd_headers_arrive_whole(tmp_path: Path, headers: dict[str, str]) -> None:
    dump = tmp_path / "dump"
    async with command(sys.executable, "-c", DUMP, str(dump)) as handler:
        await handler.call(a_task(headers=headers))
    environment, _ = json.loads(dump.read_text())
    assert json.loads(environment["DELAYQ_HEADERS"]) == headers


async def test_headers_that_no_variable_can_hold_are_buried_with_their_size() -> None:
    """They were stored by another program: the client refuses them."""
    async with shell("exit 0") as handler:
        with pytest.raises(Bury, match=r"^headers: expected at most 131,056 bytes as JSON, got 131,060$"):
            await handler.call(a_task(headers={"a": "\x01" * 21_842}))


@pytest.mark.parametrize("script", ["exit 0", "exec <&-; sleep 0.1"])
async def test_exit_code_0_acks_though_stdin_was_not_read(
    script: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with shell(script) as handler:
        await handler.call(a_task(b"x" * 1_000_000))
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "exit code 3"),
        ("echo working; echo >&2; echo first >&2; echo last >&2; exit 3", "exit code 3: last\nfirst"),
        ("echo only stdout; exit 1", "exit code 1: only stdout"),
        ("printf '\\033[2Jbad\\r\\n' >&2; exit 1", "exit code 1: �[2Jbad"),
        ("exec /no/such/program 2>/dev/null", "exit code 127"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        (f"kill -{signal.SIGRTMIN + 1} $$", f"killed by signal {signal.SIGRTMIN + 1}"),
    ],
)
async def test_any_other_end_is_a_failure_that_says_how(script: str, message: str) -> None:
    async with shell(script) as handler:
        with pytest.raises(ExecFailed) as failure:
            await handler.call(a_task())
    assert str(failure.value) == message


async def test_the_output_is_an_event_and_exit_code_75_asks_for_a_retry(
    events: Callable[[str], list[dict[str, Any]]],
) -> None:
    """EX_TEMPFAIL: after the queue's backoff, with the reason that the command gave."""
    async with shell("echo out; echo err >&2; exit 1") as handler:
        with pytest.raises(ExecFailed):
            await handler.call(a_task())
    async with shell("echo err >&2; exit 4", maxOutputBytes=0) as handler:
        with pytest.raises(ExecFailed, match=r"^exit code 4$"):  # without room for output
            await handler.call(a_task())
    async with shell("echo database is down >&2; exit 75") as handler:
        with pytest.raises(Retry, match=r"^ExecFailed: exit code 75: database is down$") as retry:
            await handler.call(a_task())
    assert (retry.value.delay_ms, retry.value.charge) == (None, True)
    event, *_ = events("command_exited")
    assert sorted(str(event.pop("output")).split()) == ["err", "out"]
    assert event == {"task_id": "order-7", "attempt": 2, "exit_code": 1, "output_dropped_bytes": 0}


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", __file__])
async def test_a_command_that_is_not_there_is_refused_at_the_start(program: str) -> None:
    with pytest.raises(
        HandlerSetupError, match=r"^spec.handler.exec.command: .*not on the PATH, or not exec"
    ):
        async with command(program):
            pass


async def test_the_path_of_the_document_finds_the_command_and_a_command_that_has_gone_fails_the_task(
    tmp_path: Path,
) -> None:
    """spec.handler.exec.env may bring a PATH of its own; the check at the start and the run agree on it."""
    program = tmp_path / "cancel-order"
    program.write_text(f"#!/bin/sh\n/bin/cat > {tmp_path}/ran\n")
    program.chmod(0o755)
    async with command("cancel-order", env={"PATH": str(tmp_path)}) as handler:
        await handler.call(a_task(b"here"))
        assert (tmp_path / "ran").read_text() == "here"
        program.unlink()
        with pytest.raises(FileNotFoundError):
            await handler.call(a_task())
