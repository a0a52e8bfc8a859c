"""`delayq run` as a child of the example: its panel goes to our terminal, its events come to us."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent
DOCUMENT = HERE / "queue.yaml"
DATA = HERE / ".delayq"
URL_FILE = DATA / "redis.url"  # where delayq run says how its Redis is reached
READY_SECONDS, STOP_SECONDS = 60, 60


class NotRunningError(Exception):
    """`delayq run` ended, or never was ready."""


class Runner:
    """A running `delayq run`, for the length of a `with` block."""

    def __enter__(self) -> Self:
        """Start it; return once all of its processes work."""
        command = [sys.executable, "-m", "delayq", "run", str(DOCUMENT), "--data-dir", str(DATA)]
        options = ["--status-interval", "1s", "--log-format", "json", "--log-level", "info"]
        self._process = subprocess.Popen(  # noqa: S603 -- our own argv
            [*command, *options], stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
        )
        self._ready, self._said = threading.Event(), list[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(READY_SECONDS) or not self.alive:
            self._process.terminate()
            self._reader.join(STOP_SECONDS)
            raise NotRunningError("\n".join(self._said[-10:]) or "delayq run said nothing")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it as Ctrl-C would."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def url(self) -> str:
        """Where its Redis is."""
        return URL_FILE.read_text(encoding="utf-8").strip()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            self._said.append(line.rstrip())
            if _event(line) == "ready":
                self._ready.set()
        self._ready.set()  # it has ended: waiters check whether it is alive


def _event(line: str) -> object:
    try:
        return json.loads(line).get("event")
    except (ValueError, AttributeError):
        return None
