"""Allow-list of the fields that a report shows. Pure.

A report shows numbers and booleans, and the strings of listed fields, with any content. It cuts messages at the
first colon: the rest can quote an error, a log or a handler.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delayq.cli.formats import tasks

if TYPE_CHECKING:
    from delayq.kube.objects import Object

LEFT_OUT: Final = "<left out>"
PARTS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
FIELDS: Final = re.compile(
    "apiVersion|kind|name|namespace|uid|resourceVersion|finalizers|.*Time|.*Timestamp|type|status|reason|deletionPolicy"
    "|suspendPolicy|concurrencyPolicy|schedule|timeZone|selectPolicy|mode|limitedBy|onFailure|confirm|queueName|keyPrefix"
    "|host|masterName|serverName|callable|onIncompleteRun|key|maxUnavailable|minAvailable"
)
"""Fields of a DelayQueue whose strings identify an object, or are terms of Kubernetes or delayq."""
NEVER: Final = re.compile("annotations|labels|managedFields|template|env|headers|secretHeaders")
"""Fields with names that users choose."""
EXPLAINED: Final = ("conditions", "scaling")
"""Fields whose `message` the operator writes."""

LOG_FIELDS: Final = re.compile(
    "time|level|logger|event|task_id|lease|token|attempt|shard|verb|verdict|outcome|cause|queue|loop|guard|process"
    "|kind|namespace|pod|name|owner|status|variable|field|where"
)
LOGGERS: Final = ("delayq", "kopf")
_ERROR: Final = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Exit|Interrupt|Warning|Timeout)\b")


def shown(queue: Object) -> Object:
    """Return the shown parts of a DelayQueue, with a placeholder for every other string."""
    found: Object = _shown({part: queue[part] for part in PARTS if part in queue}, "")
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
        return {
            key: sentence(str(each)) if key == "message" and field in EXPLAINED else _shown(each, key)
            for key, each in value.items()
            if not NEVER.fullmatch(key)
        }
    return LEFT_OUT if isinstance(value, str) and not FIELDS.fullmatch(field) else value


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
    return value if isinstance(value, str) and LOG_FIELDS.fullmatch(name) else LEFT_OUT
