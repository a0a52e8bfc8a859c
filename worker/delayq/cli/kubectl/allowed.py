"""Allow-list of the fields that a report shows. Pure.

A report shows numbers and booleans, and the strings of listed fields, whatever their content. It cuts messages at the
first colon: the rest can quote an error, a log or a handler.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names

from delayq.cli.formats import tasks

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Object

LEFT_OUT: Final = "<left out>"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARTS: Final = ("apiVersion", "kind", "metadata", "status")
"""Shown parts of every object. Templates, commands, variables and data are in other parts."""

MORE: Final = {
    names.DELAY_QUEUE.kind: ("spec",),
    "Event": (
        *("type", "reason", "message", "count", "series", "involvedObject"),
        *("firstTimestamp", "lastTimestamp", "eventTime"),
    ),
}
"""Further shown parts, by kind."""

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
"""Fields whose strings identify an object, or are terms of Kubernetes or delayq."""

NEVER: Final = frozenset({"annotations", "managedFields", "template", "env", "headers", "secretHeaders"})
"""Fields with names that users choose."""

EVENT: Final = "event"
EXPLAINED: Final = frozenset({"conditions", "scaling", EVENT})
"""Fields whose `message` the operator or Kubernetes writes. A container's message is the handler's."""

LABELS: Final = ("delayq.dev/", "app.kubernetes.io/")
SOURCES: Final = re.compile(r"delayq-operator|kubelet|default-scheduler|[a-z]+-controller")
"""Sources of shown events: the operator and Kubernetes."""

LOG_FIELDS: Final = _words("""
    time level logger event task_id lease token attempt shard verb verdict outcome cause queue loop guard
    process kind namespace pod name owner status variable field where
""")
LOGGERS: Final = ("delayq", "kopf")
_ERROR: Final = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Exit|Interrupt|Warning|Timeout)\b")


def shown(body: Object) -> Object:
    """Return the shown parts of an API object, with a placeholder for every other string."""
    kind, spec = body.get("kind"), body.get("spec") or {}
    parts = {part: body[part] for part in (*PARTS, *MORE.get(str(kind), ())) if part in body}
    if kind == "Pod" and "nodeName" in spec:
        parts["spec"] = {"nodeName": spec["nodeName"]}
    source = str(body.get("reportingComponent") or (body.get("source") or {}).get("component", ""))
    found: Object = _shown(parts, EVENT if kind == "Event" and SOURCES.fullmatch(source) else "")
    return found


def sentence(text: str) -> str:
    """Return the first line of a message, up to the colon of a quotation or a URL."""
    parts = re.split(r": |://|\n", text, maxsplit=1)
    return parts[0] if len(parts) == 1 else f"{parts[0]}: {LEFT_OUT}"


def log(text: str) -> str:
    """Return the log events of delayq and kopf, reduced to numbers and LOG_FIELDS, and the count of other lines."""
    lines = text.splitlines()
    events = [event for event in map(_logged, lines) if event]
    others = len(lines) - len(events)
    return "\n".join([*events, *([f"<{tasks(others, 'line')} left out>"] if others else [])])


def metrics(text: str) -> str:
    """Return the metrics of delayq, Python and the process in a scrape."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.startswith(("# ", "delayq_", "process_", "python_")))


def _shown(value: Any, field: str) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, list):
        return [_shown(each, field) for each in value]
    if isinstance(value, dict):
        if field == "labels":
            return {key: each for key, each in value.items() if key.startswith(LABELS)}
        return {
            key: sentence(str(each)) if key == "message" and field in EXPLAINED else _shown(each, key)
            for key, each in value.items()
            if key not in NEVER
        }
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
