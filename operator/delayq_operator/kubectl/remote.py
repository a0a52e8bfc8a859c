"""Run a command of `delayq` in a scanner pod, by kubectl exec."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from contextlib import ExitStack
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import click
from delayq.service.terminal import safe

from delayq_operator.base import names
from delayq_operator.kubectl.refusals import refusal

if TYPE_CHECKING:
    from delayq_operator.kubectl.kubectl import Kubectl
    from delayq_operator.kubectl.passed import Call

WATCHDOG: Final = ("python3", "-m", "delayq.cli.stdin_watchdog")
"""Ends the command in the pod when this process ends."""
POD_SECONDS: Final = 5
"""kubectl waits so long for a pod; a minute by default."""
ENDED: Final = "command terminated with exit code "
"""The line that kubectl adds to the output of a failed command."""
OWN: Final = (ENDED, "Error from server", "error: unable to ", "error: timed out waiting for the condition")
"""Beginnings of lines of kubectl's own, which the error repeats."""
LINE_CHARACTERS: Final = 65_536
LAST_LINES: Final = 100
"""Of stderr that are kept for the error."""


def scanner(name: str) -> tuple[str, ...]:
    """Return kubectl's arguments for a scanner of a queue: it prefers a pod that is ready."""
    return f"deployment/{names.scanner(name)}", "--container=scanner", f"--pod-running-timeout={POD_SECONDS}s"


def run(kubectl: Kubectl, name: str, call: Call) -> int:
    """Run `delayq` in a pod; return its exit code."""
    terminal = call.terminal and sys.stdin.isatty() and sys.stdout.isatty()
    watched = not terminal and "stdin" not in call.files
    words = (*(WATCHDOG if watched else ("delayq",)), *call.words)
    argv = kubectl.argv("exec", *scanner(name), "-it" if terminal else "-i", "--", *words)
    # The author of the queue chooses the image of the pod: nothing of its output controls this terminal.
    filtered = "stdout" not in call.files and not terminal and sys.stdout.isatty()
    # Do not read the caller's stdin, for `while read … do kubectl dq …`. The watchdog detects that the pipe closes.
    streams: dict[str, Any] = {"encoding": "utf-8", "errors": "replace", "stderr": subprocess.PIPE}
    streams["stdin"] = subprocess.PIPE if watched else None
    with ExitStack() as stack:
        for stream, path in call.files.items():
            mode = "rb" if stream == "stdin" else "wb"
            streams[stream] = stack.enter_context(click.open_file(path, mode, atomic=mode == "wb"))
        streams.setdefault("stdout", subprocess.PIPE if filtered else None)
        return _ended(stack.enter_context(kubectl.start(argv, **streams)))


def _ended(child: subprocess.Popen[str]) -> int:
    last: deque[str] = deque(maxlen=LAST_LINES)  # kubectl's own error comes last
    reader = threading.Thread(target=_copy, args=(child.stderr, sys.stderr, OWN, last), daemon=True)
    reader.start()
    try:
        if child.stdout is not None:
            _copy(child.stdout, sys.stdout)
        code = child.wait()
        reader.join()
    finally:
        child.terminate()
    if code != 0 and not any(line.startswith(ENDED) for line in last):
        raise refusal("".join(last))
    return code


def _copy(stream: IO[str], to: IO[str], but: tuple[str, ...] = (), last: deque[str] | None = None) -> None:
    """Print what a pod prints, without escape sequences and without some lines; keep the last ones."""
    # Longer lines, which a pod may print without end, come in parts.
    for line in iter(partial(stream.readline, LINE_CHARACTERS), ""):
        if last is not None:
            last.append(line)
        if not line.startswith(but):
            to.write(safe(line))
            to.flush()
