"""Runs the parts of `make test` side by side: `python -m tests [VARIABLE=VALUE…] [EXTRA PART…]`.

A part is a target of the Makefile. Parts that mostly wait (a kubelet, a fail-over) run beside parts that compute, so
that both cores have work until the end. The output of a part is in `.cache/test/PART.log`; it is printed when the part
fails.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOGS: Final = ROOT / ".cache" / "test"
LANES: Final = (
    ("test-node", "test-process"),
    ("test-cluster", "test-images"),
    ("check", "test-alone", "test-redis"),
)
"""Each lane runs its parts one after the other. The last lane mostly computes, and lets the others go first."""
PROGRESS_SECONDS: Final = 30.0
PERCENT: Final = re.compile(rb"\[ *(\d+)%\]")
CLOSING_LINE: Final = re.compile(r"^=+ .* in [0-9.]+s(?: \([0-9:]+\))? =+$", re.MULTILINE)
"""pytest's last line. `.ci/run` looks for it in the output of `make test`."""


class Part:
    """One `make` target; made when it starts."""

    def __init__(self, name: str, nice: int, variables: list[str]) -> None:
        self.name, self.log, self.began, self.cpu_seconds = name, LOGS / f"{name}.log", time.monotonic(), 0.0
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["nice", "-n", str(nice), "make", name, *variables],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> int:
        """Its exit code, once it has ended, with the CPU time of all processes that were waited for."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode

    def progress(self) -> str:
        percents = PERCENT.findall(self.log.read_bytes())
        return f"{self.name} {int(percents[-1])} %" if percents else self.name

    def result(self) -> str:
        """How it ended; with its output when it failed, and what pytest counted when it passed."""
        output = self.log.read_text(errors="replace")
        took = f"{minutes(self.began)}, {self.cpu_seconds:.0f} CPU-seconds"
        if self.process.returncode:
            return f"── output of {self.name} ──\n{output}\n· {self.name} FAILED after {took}"
        return "\n".join((f"· {self.name} passed after {took}", *CLOSING_LINE.findall(output)))


def minutes(began: float) -> str:
    seconds = int(time.monotonic() - began)
    return f"{seconds // 60}:{seconds % 60:02d}"


class Run:
    """One run of all lanes; every lane has a thread."""

    def __init__(self, variables: list[str]) -> None:
        self.variables, self.began = variables, time.monotonic()
        self.running: list[Part] = []
        self.failed: list[str] = []
        self._lock, self._over = threading.Lock(), threading.Event()

    def lane(self, parts: tuple[str, ...], nice: int) -> None:
        for name in parts:
            with self._lock:
                if self._over.is_set():
                    return
                part = Part(name, nice, self.variables)
                self.running.append(part)
            code = part.wait()
            with self._lock:
                self.running.remove(part)
                self.failed += [name] if code else []
                print(part.result(), flush=True)

    def show_progress(self) -> None:
        while not self._over.wait(PROGRESS_SECONDS):
            with self._lock:
                state = ", ".join(part.progress() for part in self.running)
            print(f"· {minutes(self.began)} running: {state}", flush=True)

    def end(self) -> None:
        """Interrupt what still runs, as Ctrl-C does; lanes end when it has tidied up."""
        with self._lock:
            self._over.set()
            running = list(self.running)
        for part in running:
            with suppress(ProcessLookupError):
                os.killpg(part.process.pid, signal.SIGINT)

    def all_lanes(self, lanes: tuple[tuple[str, ...], ...]) -> list[str]:
        """Run everything; the names of the parts that failed."""
        threads = [threading.Thread(target=self.lane, args=(parts, 0)) for parts in lanes[:-1]]
        threads.append(threading.Thread(target=self.lane, args=(lanes[-1], 5)))
        for thread in (*threads, threading.Thread(target=self.show_progress)):
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            self.end()
            for thread in threads:
                thread.join()
        return self.failed


def main(arguments: list[str]) -> int:
    variables = [argument for argument in arguments if "=" in argument]
    extra = tuple(argument for argument in arguments if "=" not in argument)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"· running {len(LANES)} lanes side by side; output: {LOGS.relative_to(ROOT)}/PART.log", flush=True)
    run = Run(variables)
    failed = run.all_lanes((*LANES[:-1], (*LANES[-1], *extra)))
    print(
        f"· {minutes(run.began)} {'FAILED: ' + ', '.join(failed) if failed else 'all parts passed'}",
        flush=True,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
