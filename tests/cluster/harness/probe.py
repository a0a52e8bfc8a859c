"""The probes of a container, asked as the kubelet asks them. All of ours ask by HTTP."""

from __future__ import annotations

import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object


@dataclass
class Probe:
    """One probe: `passed` is None until enough answers in a row agreed."""

    spec: Object
    container: Object
    address: str
    due: float
    passed: bool | None = None
    _streak: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.due += self.spec.get("initialDelaySeconds", 0)

    def step(self, now: float) -> None:
        """Ask when it is time to."""
        if now < self.due:
            return
        self.due = now + self.spec.get("periodSeconds", 10)
        answer = self._ask(self.spec.get("timeoutSeconds", 1))
        self._streak = [*self._streak, answer] if self._streak[-1:] == [answer] else [answer]
        needed = self.spec.get("successThreshold", 1) if answer else self.spec.get("failureThreshold", 3)
        if len(self._streak) >= needed:
            self.passed = answer

    def _ask(self, timeout_s: float) -> bool:
        get = self.spec["httpGet"]
        url = f"http://{self.address}:{self._port(get['port'])}{get.get('path', '/')}"
        with suppress(OSError), urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return bool(200 <= answer.status < 400)
        return False

    def _port(self, port: int | str) -> int:
        named = {
            item["name"]: item["containerPort"] for item in self.container.get("ports", ()) if "name" in item
        }
        return int(named.get(str(port), port))
