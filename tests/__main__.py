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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOGS: Final = ROOT / ".cache" / "test"
LANES: Final = (
    ("test-node", "test-process"),
    ("test-cluster",),
    ("check", "test-alone", "test-redis", "test-images"),
)
"""Each lane runs its parts one after the other. The last lane mostly computes, and lets the others go first."""
PROGRESS_SECONDS: Final = 30.0
PERCENT: Final = re.compile(rb"\[ *(\d+)%\]")
CLOSING_LINE: Final = re.compile(r"^=+ .* in [0-9.]+s(?: \([0-9:]+\))? =+$", re.MULTILINE)


@dataclass
class Part:
    """One `make` target; made when it starts."""

    name: str
    process: subprocess.Popen[bytes]
    started: float = field(default_factory=time.monotonic)

    @property
    def log(self) -> Path:
        return log_of(self.name)

    def progress(self) -> str:
        percents = PERCENT.findall(self.log.read_bytes())
        return f"{self.name} {int(percents[-1])} %" if percents else self.name


def log_of(part: str) -> Path:
    return LOGS / f"{part}.log"


def minutes(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


class Run:
    """One run of all lanes; every lane has a thread."""

    def __init__(self, variables: list[str], lanes: tuple[tuple[str, ...], ...]) -> None:
        self.variables = variables
        self.lanes = lanes
        self.running: dict[str, Part] = {}
        self.failed: list[str] = []
        self._lock = threading.Lock()
        self._ended = False

    def lane(self, parts: tuple[str, ...], nice: int) -> None:
        for name in parts:
            if part := self.start(name, nice):
                self.report(part, part.process.wait())

    def start(self, name: str, nice: int) -> Part | None:
        command = ["nice", "-n", str(nice), "make", name, *self.variables]
        with self._lock:
            if self._ended:
                return None
            with log_of(name).open("wb") as log:
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.running[name] = part = Part(name, process)
        return part

    def report(self, part: Part, code: int) -> None:
        output = part.log.read_text(errors="replace")
        with self._lock:
            del self.running[part.name]
            if code:
                self.failed.append(part.name)
                print(f"── output of {part.name}, which failed with {code} ──\n{output}", flush=True)
            else:
                print(*CLOSING_LINE.findall(output), sep="\n")
            took = minutes(time.monotonic() - part.started)
            print(f"· {part.name} {'FAILED' if code else 'passed'} after {took}", flush=True)

    def show_progress(self, done: threading.Event) -> None:
        began = time.monotonic()
        while not done.wait(PROGRESS_SECONDS):
            with self._lock:
                state = ", ".join(part.progress() for part in self.running.values())
            print(f"· {minutes(time.monotonic() - began)} running: {state}", flush=True)

    def end(self) -> None:
        """Interrupt what still runs, as Ctrl-C does, and wait until it has tidied up."""
        with self._lock:
            self._ended = True
            running = list(self.running.values())
        for part in running:
            os.killpg(part.process.pid, signal.SIGINT)
        for part in running:
            part.process.wait()

    def all_lanes(self) -> list[str]:
        """Run everything; the names of the parts that failed."""
        done = threading.Event()
        last = len(self.lanes) - 1
        lanes = [
            threading.Thread(target=self.lane, args=(parts, 5 if number == last else 0))
            for number, parts in enumerate(self.lanes)
        ]
        progress = threading.Thread(target=self.show_progress, args=(done,))
        for thread in (progress, *lanes):
            thread.start()
        try:
            for thread in lanes:
                thread.join()
        finally:
            self.end()
            done.set()
            progress.join()
        return self.failed


def main(arguments: list[str]) -> int:
    variables = [argument for argument in arguments if "=" in argument]
    extra = tuple(argument for argument in arguments if "=" not in argument)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    print(f"· running {len(LANES)} lanes side by side; output: {LOGS.relative_to(ROOT)}/PART.log", flush=True)
    failed = Run(variables, (*LANES[:-1], (*LANES[-1], *extra))).all_lanes()
    took = minutes(time.monotonic() - began)
    print(f"· {took} {'FAILED: ' + ', '.join(failed) if failed else 'all parts passed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
