"""One container of a pod on a ProcessNode: a process of this host, restarted and probed as the pod's spec says."""

from __future__ import annotations

import os
import signal
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.harness.rest import Object
    from tests.cluster.harness.server import LoggedProcess

FIRST_BACKOFF_SECONDS: Final = 0.2  # the kubelet's is 10 s
LONGEST_BACKOFF_SECONDS: Final = 5.0
PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")


def stamp() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


class Probe:
    """One probe, asked by HTTP as the kubelet asks it: `passed` is None until enough answers in a row agreed."""

    def __init__(self, spec: Object, container: Object, address: str, now: float) -> None:
        get, ports = spec["httpGet"], container.get("ports", ())
        named = {item["name"]: item["containerPort"] for item in ports if "name" in item}
        self._url = f"http://{address}:{named.get(get['port'], get['port'])}{get.get('path', '/')}"
        self._spec, self._due = spec, now + spec.get("initialDelaySeconds", 0)
        self._streak = 0  # of good answers, or below 0 of bad ones
        self.passed: bool | None = None

    def step(self, now: float) -> None:
        """Ask when it is time to."""
        if now < self._due:
            return
        self._due = now + self._spec.get("periodSeconds", 10)
        good = self._ask(self._spec.get("timeoutSeconds", 1))
        self._streak = max(self._streak, 0) + 1 if good else min(self._streak, 0) - 1
        needed = self._spec.get("successThreshold", 1) if good else self._spec.get("failureThreshold", 3)
        if abs(self._streak) >= needed:
            self.passed = good

    def _ask(self, timeout_s: float) -> bool:
        with suppress(OSError), urllib.request.urlopen(self._url, timeout=timeout_s) as answer:  # noqa: S310  a pod of ours
            return bool(200 <= answer.status < 400)
        return False


@dataclass
class Container:
    """`step()` does what is due; `status()` says what the kubelet would."""

    spec: Object
    address: str
    launch: Callable[[], LoggedProcess]
    restarted: Callable[[int], bool]
    """Whether a process that ended with this code is started again."""
    last_words: Callable[[], str] = str
    """The end of its log, for one that failed: as with FallbackToLogsOnError."""
    process: LoggedProcess | None = None
    restarts: int = 0
    finished: bool = False
    closing: bool = False
    _start_at: float = 0.0
    _state: Object = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    _last_state: Object = field(default_factory=dict)
    _probes: dict[str, Probe] = field(default_factory=dict)

    def step(self, now: float) -> None:
        if self.finished:
            return
        if self.process is None:
            self._start(now)
        elif (code := self.process.popen.poll()) is not None:
            self._sweep(self.process)
            self._ended(code if code >= 0 else 128 - code, now)
        elif not self.closing:
            self._probe(now)

    def send(self, number: signal.Signals) -> None:
        """Before it is stopped; it is not started again."""
        self.closing = True
        if self.process is None:
            self.finished = True
        else:
            self.process.send(number)

    def kill(self) -> None:
        """SIGKILL, and nothing is left of it."""
        if self.process is not None:
            self.process.kill()
            self._sweep(self.process)
        self.process, self.finished = None, True

    def _sweep(self, process: LoggedProcess) -> None:
        """End what a process left behind, as the end of a container does."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    @property
    def exit_code(self) -> int | None:
        code: int | None = self._state.get("terminated", {}).get("exitCode")
        return code

    @property
    def ready(self) -> bool:
        """Running, started, and found ready if there is a probe for it."""
        if self.process is None or self.closing or not self._started:
            return False
        readiness = self._probes.get("readinessProbe")
        return readiness is None or readiness.passed is True

    @property
    def _started(self) -> bool:
        startup = self._probes.get("startupProbe")
        return startup is None or startup.passed is True

    def status(self) -> Object:
        return {
            "name": self.spec["name"],
            "image": self.spec["image"],
            "imageID": "",
            "ready": self.ready,
            "started": self.process is not None and self._started,
            "restartCount": self.restarts,
            "state": self._state,
            "lastState": self._last_state,
        }

    def _start(self, now: float) -> None:
        if now < self._start_at:
            return
        self.restarts += 1 if self._last_state else 0
        self.process = self.launch()
        self._state = {"running": {"startedAt": stamp()}}
        self._probes = {
            name: Probe(self.spec[name], self.spec, self.address, now) for name in PROBES if name in self.spec
        }

    def _ended(self, code: int, now: float) -> None:
        started = self._state["running"]["startedAt"]
        reason = "Completed" if code == 0 else "Error"
        ended: Object = {
            "terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": stamp()}
        }
        if code:
            ended["terminated"]["message"] = self.last_words()
        self.process = None
        if self.closing or not self.restarted(code):
            self._state, self.finished = ended, True
            return
        self._state, self._last_state = {"waiting": {"reason": "CrashLoopBackOff"}}, ended
        self._start_at = now + min(FIRST_BACKOFF_SECONDS * 2**self.restarts, LONGEST_BACKOFF_SECONDS)

    def _probe(self, now: float) -> None:
        asked = PROBES[1:] if self._started else PROBES[:1]
        for name in asked:
            if name in self._probes:
                self._probes[name].step(now)
        failed = [name for name in PROBES[:2] if name in self._probes and self._probes[name].passed is False]
        if failed and self.process is not None:
            self.process.kill()  # without the grace period that the kubelet would give
