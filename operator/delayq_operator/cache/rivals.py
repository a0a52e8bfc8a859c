"""Decides which installation of the operator serves a DelayQueue, if several do by mistake. Pure.

Each writes its claim, the age and the name of its Lease, into the ConfigMap of a queue. The older one restores its
claim as it repairs drift. The newer one writes its claim only, and waits: if the claim stays, the older one is gone,
and it serves the queue; if it is replaced, it yields. It claims again periodically, and the older one reports that.

Not here: replicas of one installation, of which one leads (lease.py); they have one claim.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from delayq_operator.base import names

if TYPE_CHECKING:
    from delayq.kube.objects import Object

    from delayq_operator.base.names import Key

CLAIM_SECONDS: Final = 60.0
"""How long a claim must stay: a restarting operator replaces it sooner."""
YIELD_SECONDS: Final = 120.0
"""After this, a newer installation claims again."""
REPORT_SECONDS: Final = 300.0
"""For how long the older one reports a claim; longer than the pause between two."""

_CLAIM: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z [a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}", re.ASCII
)
CURE: Final = "uninstall one of the two, or have each serve other namespaces"


class Stance(Enum):
    """What an installation may do about a queue."""

    SERVE = "serve"
    CLAIM = "claim"
    """Write the claim, and nothing else."""
    YIELD = "yield"


class Rivals:
    """The other installations that claim queues of this one."""

    def __init__(self) -> None:
        """There is no rival before `me` is set."""
        self.me = ""
        self._claimed: dict[Key, float] = {}
        self._yielded: dict[Key, float] = {}
        self._seen: dict[Key, tuple[str, float]] = {}
        self.yielded_to: dict[Key, str] = {}
        self.claimed_by: dict[Key, str] = {}
        """Of both: by DelayQueue, the other installation, until it has been logged."""

    def stance(self, key: Key, claim: str, now: float) -> Stance:
        """Decide by the claim that is in the ConfigMap now; empty without one."""
        if not self.me or not claim or _name(claim) == _name(self.me):
            return self._undisputed(key, now)
        if claim > self.me:  # begins with the age
            self._report(key, claim, now)
            return Stance.SERVE
        if now - self._yielded.get(key, -YIELD_SECONDS) < YIELD_SECONDS:
            return Stance.YIELD
        if self._claimed.pop(key, None) is not None:
            self._yielded[key] = now
            self.yielded_to[key] = _name(claim)
            return Stance.YIELD
        self._claimed[key] = now
        return Stance.CLAIM

    def _undisputed(self, key: Key, now: float) -> Stance:
        self._yielded.pop(key, None)
        if now - self._claimed.get(key, now - CLAIM_SECONDS) < CLAIM_SECONDS:
            return Stance.CLAIM
        self._claimed.pop(key, None)
        return Stance.SERVE

    def _report(self, key: Key, claim: str, now: float) -> None:
        if self.seen(key, now) != _name(claim):
            self.claimed_by[key] = _name(claim)
        self._seen[key] = (_name(claim), now)

    def claims(self, key: Key) -> bool:
        """Whether the claim is all that may be written now."""
        return key in self._claimed

    def seen(self, key: Key, now: float) -> str:
        """Name the newer installation that claimed a queue within REPORT_SECONDS; empty if none did."""
        name, at = self._seen.get(key, ("", 0.0))
        return name if now - at < REPORT_SECONDS else ""

    def forget(self, key: Key) -> None:
        for each in (self._claimed, self._yielded, self._seen):
            each.pop(key, None)


def claim_in(config_map: Object | None) -> str:
    """Read the claim in the ConfigMap of a queue; empty if there is none, or other text."""
    annotations = config_map["metadata"].get("annotations") if config_map is not None else None
    claim = str((annotations or {}).get(names.INSTALLATION, ""))
    return claim if _CLAIM.fullmatch(claim) else ""


def _name(claim: str) -> str:
    return claim.partition(" ")[2]
