"""Who asked the API server for what: its audit log, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLICY: Final = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
# The control plane's own work is many times that of a test.
- level: None
  users: ["system:apiserver", "system:kube-controller-manager"]
- level: None
  userGroups: ["system:serviceaccounts:kube-system"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*", "/openapi*"]
- level: Metadata
"""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One request, once it was answered; a watch, once it was opened."""

    user: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    at: str
    """When it was received, RFC 3339 with microseconds."""


def read(log: Path, since: int = 0) -> Iterator[AuditEvent]:
    """The events from an offset of the log on, each once."""
    opened: set[str] = set()
    if not log.exists():
        return
    with log.open("rb") as lines:
        lines.seek(max(0, since - 1))
        if since and not lines.readline().endswith(b"\n"):
            return  # the mark is within a line that is still being written
        for line in lines:
            if not line.endswith(b"\n"):
                return  # being written
            event = json.loads(line)
            if event["auditID"] in opened:
                continue  # the end of a watch
            if event["stage"] == "ResponseStarted":
                opened.add(event["auditID"])
            yield _event(event)


def _event(event: dict[str, Any]) -> AuditEvent:
    target = event.get("objectRef", {})
    return AuditEvent(
        user=event["user"].get("username", ""),  # none, when it refused the token
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        at=event["requestReceivedTimestamp"],
    )
