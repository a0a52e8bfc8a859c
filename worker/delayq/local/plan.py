"""The options of `delayq run`, and the command lines of its processes."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delayq.local import datadir
from delayq.local.process import Command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.service.logs import LogFormat

URL_VARIABLE = "DELAYQ_REDIS_URL"  # other users can read command lines, but not the environment


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of one document."""

    document: Path
    queue: DelayQueue
    redis_url: str | None  # None: embedded
    data_dir: Path | None  # None: beside the document
    scanners: int
    workers: int
    reaper: bool
    log_format: LogFormat
    log_level: str
    status_seconds: float | None  # None: 1 s on a terminal, 5 s else
    metrics_port: int | None = None  # of the first process; None: free ones

    @property
    def directory(self) -> Path:
        """Directory of the embedded Redis' data."""
        return (self.data_dir or self.document.parent / datadir.NAME).absolute()

    @property
    def worker_names(self) -> list[str]:
        """worker-1 and so on."""
        return [f"worker-{n + 1}" for n in range(self.workers)]

    @property
    def scanner_names(self) -> list[str]:
        """scanner-1 and so on."""
        return [f"scanner-{n + 1}" for n in range(self.scanners)]

    def commands(self, url: str | None) -> Iterator[tuple[str, Command]]:
        """Yield name and command of each process, workers first; the metrics ports have this order."""
        verbs: list[tuple[str, tuple[str, ...]]] = [(name, ("worker",)) for name in self.worker_names]
        verbs += [(name, ("scanner",)) for name in self.scanner_names]
        if self.reaper:
            verbs.append(("reaper", ("reaper", "--for", "0s")))
        for number, (name, verb) in enumerate(verbs):
            port = 0 if self.metrics_port is None else self.metrics_port + number
            yield name, self._command(url, port, *verb)

    def _command(self, url: str | None, port: int, *verb: str) -> Command:
        python = (sys.executable, "-P", "-m", "delayq.local.child", str(os.getpid()))
        beside, config = str(self.document.absolute().parent), str(self.document)
        # Relay filters by level. It needs the `info` events for the status panel.
        level = "debug" if self.log_level == "debug" else "info"
        options = ("--config", config, "--port", str(port), "--log-format", "json", "--log-level", level)
        env = {name: value for name, value in os.environ.items() if name != URL_VARIABLE}
        env |= {} if url is None else {URL_VARIABLE: url}
        return Command((*python, beside, *verb, *options), env)
