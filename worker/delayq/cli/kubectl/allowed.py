"""What a report may show: an allow-list of fields. Pure.

Numbers and booleans are shown. A string is shown because of the field it stands in, never because it looks harmless.
A sentence is shown up to its first colon: after it, a message quotes an error, a log or a handler.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Object

LEFT_OUT: Final = "<left out>"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARTS: Final = ("apiVersion", "kind", "metadata", "status")
"""Of every object. Templates, commands, variables and data stand elsewhere; of a DelayQueue, the spec is shown, too."""

FIELDS: Final = _words("""
    apiVersion kind name namespace uid generateName resourceVersion finalizers
    creationTimestamp deletionTimestamp lastTransitionTime lastUpdateTime lastProbeTime lastScheduleTime
    lastSuccessfulTime firstTimestamp lastTimestamp lastObservedTime eventTime startTime completionTime startedAt
    finishedAt lastScaleTime wakeTime nextDueTime observedTime oldestDueTime type status reason phase podIP hostIP ip
    nodeName reportingComponent image imageID containerID qosClass deletionPolicy stopPolicy
    concurrencyPolicy schedule timeZone selectPolicy mode limitedBy onFailure confirm queueName
    keyPrefix host masterName serverName callable onIncompleteRun key
    maxUnavailable minAvailable
""")
"""Fields whose strings identify an object, or are words of Kubernetes' or of delayq's vocabulary."""

NEVER: Final = frozenset({"annotations", "managedFields", "template", "env", "headers"})
"""What an author fills with names of his own."""

EXPLAINED: Final = frozenset({"conditions", "scaling"})
"""Where a `message` is the operator's or Kubernetes' own; that of a container is the handler's."""

LABELS: Final = ("delayq.dev/", "app.kubernetes.io/")
SOURCES: Final = re.compile(r"delayq-operator|kubelet|default-scheduler|[a-z]+-controller")
"""Who writes events that are shown: the operator and Kubernetes itself."""

EVENT: Final = (
    "metadata",
    "type",
    "reason",
    "count",
    "firstTimestamp",
    "lastTimestamp",
    "eventTime",
    "series",
)

LOG_FIELDS: Final = _words("""
    time level logger event task_id lease token attempt shard verb verdict outcome cause queue loop guard
    process kind namespace pod name owner status variable field where
""")
LOGGERS: Final = ("delayq", "kopf")
_ERROR: Final = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Exit|Interrupt|Warning|Timeout)\b")


def shown(body: Object) -> Object:
    """Return what may be shown of an object of the API, with a placeholder for every other string."""
    if body.get("kind") == "Event":
        return _event(body)
    parts: Object = {part: body[part] for part in PARTS if part in body}
    if body.get("kind") == names.DELAY_QUEUE.kind:
        parts["spec"] = body.get("spec") or {}
    if body.get("kind") == "Pod" and "nodeName" in body.get("spec", {}):
        parts["spec"] = {"nodeName": body["spec"]["nodeName"]}
    return _mapping(parts, "")


def sentence(text: str) -> str:
    """Return the first line of a message up to the colon of a quotation or a URL."""
    said = re.split(r": |://|\n", text, maxsplit=1)
    return said[0] if len(said) == 1 else f"{said[0]}: {LEFT_OUT}"


def log(text: str) -> str:
    """Return the events of delayq and kopf with numbers and LOG_FIELDS, and how many other lines there are."""
    lines = text.splitlines()
    events = [event for event in map(_logged, lines) if event]
    others = len(lines) - len(events)
    return "\n".join([*events, *([f"<{others} lines left out>"] if others else [])])


def metrics(text: str) -> str:
    """Return the lines of a scrape that delayq, Python or the process itself writes."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.startswith(("# ", "delayq_", "process_", "python_")))


def _event(body: Object) -> Object:
    found = _mapping({field: body[field] for field in EVENT if field in body}, "")
    source = str(body.get("reportingComponent") or (body.get("source") or {}).get("component", ""))
    said = sentence(str(body.get("message"))) if SOURCES.fullmatch(source) else LEFT_OUT
    return {**found, "object": (body.get("involvedObject") or {}).get("name"), "message": said}


def _mapping(mapping: Object, field: str) -> Object:
    if field == "labels":
        return {key: each for key, each in mapping.items() if key.startswith(LABELS)}
    return {
        key: sentence(str(each)) if key == "message" and field in EXPLAINED else _value(each, key)
        for key, each in mapping.items()
        if key not in NEVER
    }


def _value(value: Any, field: str) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, dict):
        return _mapping(value, field)
    if isinstance(value, list):
        return [_value(each, field) for each in value]
    return LEFT_OUT if isinstance(value, str) and field not in FIELDS else value


def _logged(line: str) -> str | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not str(found.get("logger", "")).startswith(LOGGERS):
        return None
    return json.dumps({name: _log_field(name, value) for name, value in found.items()}, ensure_ascii=False)


def _log_field(name: str, value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    if name == "error" and isinstance(value, str) and (error := _ERROR.match(value)):
        return f"{error[0]}: {LEFT_OUT}"
    return value if isinstance(value, str) and name in LOG_FIELDS else LEFT_OUT
