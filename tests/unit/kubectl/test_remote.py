"""Commands in a scanner pod, by a program in place of kubectl."""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from delayq.cli.exits import CommandError
from delayq_operator.kubectl import remote
from delayq_operator.kubectl.kubectl import VARIABLE, Kubectl
from delayq_operator.kubectl.passed import Call

if TYPE_CHECKING:
    from io import FileIO

PROGRAM = r"""#!/bin/sh
printf '%s ' "$@" > "$CALLED"
printf 'due\t7\n\033]0;owned\007\302\2332Jdead\t0\n'
"""
RAW, FILTERED = "due\t7\n\x1b]0;owned\x07\x9b2Jdead\t0\n", "due\t7\n·]0;owned··2Jdead\t0\n"


def by(*, terminal: bool = False, **files: str) -> Call:
    return Call(words=("doctor",), files=files, terminal=terminal)


def output_on_a_terminal(monkeypatch: pytest.MonkeyPatch, command: Call, *, typing: bool) -> str:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as stdout, Path(os.ttyname(theirs) if typing else os.devnull).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        stdio = os.dup(1)
        os.dup2(theirs, 1)  # what a child inherits
        try:
            assert remote.run(Kubectl(), "orders", command) == 0
        finally:
            os.dup2(stdio, 1)
            os.close(stdio)
    with os.fdopen(ours, "rb", buffering=0) as screen:
        return b"".join(iter(lambda: _read(screen), b"")).replace(b"\r\n", b"\n").decode()


def _read(screen: FileIO) -> bytes:
    """The next bytes; none once the other end is closed, and all of them are read."""
    with suppress(OSError):
        return screen.read(4096)
    return b""


@pytest.mark.parametrize(
    ("command", "typing", "shown", "exec_option"),
    [
        (by(), False, FILTERED, "-i"),
        (by(), True, FILTERED, "-i"),
        (by(stdin="-"), True, FILTERED, "-i"),
        (by(terminal=True), False, FILTERED, "-i"),
        (by(terminal=True), True, RAW, "-it"),
    ],
)
def test_what_a_pod_prints_cannot_control_the_terminal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    command: Call,
    typing: bool,
    shown: str,
    exec_option: str,
) -> None:
    """Unless the command draws or asks: only then the pod gets the terminal."""
    program = tmp_path / "kubectl"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(program))
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    assert output_on_a_terminal(monkeypatch, command, typing=typing) == shown
    before, _, after = (tmp_path / "called").read_text().partition(" -- ")
    assert before.split()[:2] == ["exec", "deployment/orders-scanner"]
    assert re.findall(" (-[a-z]+)", before) == [exec_option]
    watched = exec_option == "-i" and not command.files
    assert after.split()[:-1] == (["python3", "-m", "delayq.cli.stdin_watchdog"] if watched else ["delayq"])


def test_output_without_a_line_break_arrives_in_parts_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod that never prints one must not fill the memory."""
    program = tmp_path / "kubectl"
    program.write_text(
        f"#!{sys.executable}\nprint('é' * 100_000, end='')\nimport sys; print('é' * 100_000, file=sys.stderr)"
    )
    program.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(program))
    monkeypatch.setenv("PYTHONUTF8", "1")
    assert remote.run(Kubectl(), "orders", by(stdout=str(tmp_path / "file"))) == 0
    assert (tmp_path / "file").read_text() == "é" * 100_000
    assert capsys.readouterr().err == "é" * 100_000 + "\n"
    wrote: list[str] = []
    remote._copy(io.StringIO("é" * 100_000), SimpleNamespace(write=wrote.append, flush=bool))  # type: ignore[arg-type]
    assert "".join(wrote) == "é" * 100_000
    assert max(map(len, wrote)) <= remote.LINE_CHARACTERS


def test_the_last_errors_of_a_pod_that_prints_many_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nseq 100000 >&2\necho 'Error from server (NotFound): gone' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(program))
    with pytest.raises(CommandError, match="gone") as caught:
        remote.run(Kubectl(), "orders", by())
    assert "99999" in str(caught.value)
    assert "\n9000\n" not in str(caught.value)


def test_without_kubectl_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere/kubectl")
    with pytest.raises(
        CommandError, match="cannot run /nowhere/kubectl: No such file or directory"
    ) as caught:
        remote.run(Kubectl(), "orders", by())
    assert (caught.value.code, caught.value.hint) == (1, "install it, or name it in $KUBECTL")
