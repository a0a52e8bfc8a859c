"""What a report may show: an allow-list of fields. Pure.

Numbers and booleans are shown. A string is shown because of the field it stands in, never because it looks
harmless. Of a sentence, what follows the first colon is left out: there a message quotes an error, a log or a
handler. Of a URL, scheme and host are shown.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delayq.cli.kubectl.kubectl import Object

LEFT_OUT: Final = "<left out>"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FIELDS: Final = _words("""
    apiVersion kind name namespace uid generateName resourceVersion ownerReferences finalizers
    creationTimestamp deletionTimestamp lastTransitionTime lastUpdateTime lastProbeTime lastScheduleTime
    lastSuccessfulTime firstTimestamp lastTimestamp eventTime startTime completionTime startedAt finishedAt
    lastScaleTime wakeTime nextDueTime observedTime oldestDueTime type status reason phase podIP hostIP ip
    nodeName serviceAccountName schedulerName reportingComponent component image imageID containerID
    imagePullPolicy restartPolicy terminationMessagePolicy protocol qosClass deletionPolicy stopPolicy
    concurrencyPolicy schedule timeZone selectPolicy mode limitedBy onFailure acknowledge queueName
    keyPrefix host masterName serverName callable wait unfinished currentRevision updateRevision key
    usernameKey passwordKey certKey keyKey secretName mountPath subPath fieldPath resource cpu memory
    ephemeral-storage maxUnavailable maxSurge minAvailable targetPort containerPort operator effect
""")
"""Fields whose strings identify an object, or are words of Kubernetes' or of delayq's vocabulary."""
SENTENCES: Final = frozenset({"message", "note"})
URLS: Final = frozenset({"url"})
MAPS: Final = _words("""
    labels matchLabels annotations selector nodeSelector env headers data binaryData volumeAttributes options
""")
"""Maps whose keys the author chooses: a value is shown when its key begins like one of OURS."""
OURS: Final = ("delayq.dev/", "app.kubernetes.io/", "deployment.kubernetes.io/", "pod-template-hash")
COMMANDS: Final = ("delayq", "delayq-operator")
"""Programs that take no secret as an argument."""
SOURCES: Final = re.compile(r"delayq-operator|kubelet|default-scheduler|[a-z]+-controller")
"""Who writes events that are shown: the operator and Kubernetes itself."""
LOG_FIELDS: Final = _words("""
    time level logger event task_id lease token attempt shard verb verdict outcome cause queue loop guard
    process kind namespace pod name owner status variable field where
""")
LOGGERS: Final = ("delayq", "kopf")

_URL: Final = re.compile(r"\b([a-z][a-z0-9+.-]{0,20}://)(\S*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"[^/\s\"'<>?#@]*")
_HOST: Final = re.compile(r"((\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?)?", re.IGNORECASE)
_FRAME: Final = re.compile(
    r'\s*(?:Traceback \(most recent call last\):|File "[^"\n]{1,300}", line \d+, in \S+)'
)
_ERROR: Final = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Exit|Interrupt|Warning|Timeout)\b")


def shown(body: Object) -> Object:
    """Return what may be shown of an object of the API, with a placeholder for every other string."""
    if body.get("kind") == names.SECRET.kind:
        return {"kind": names.SECRET.kind, "metadata": {"name": body["metadata"]["name"]}}
    found: Object = _value(body, "")
    if body.get("kind") == "Event" and not SOURCES.fullmatch(_source(body)):
        found["message"] = LEFT_OUT
    return found


def sentence(text: str) -> str:
    """Return the first line of a message up to its first colon, without paths of URLs."""
    line, _, more = text.partition("\n")
    said, colon, quoted = _urls(line).partition(": ")
    return f"{said}: {LEFT_OUT}" if (colon and quoted) or more else said


def log(text: str) -> str:
    """Return a log: delayq's events with numbers and LOG_FIELDS; of other lines, the places of errors."""
    return "\n".join(_counted(map(_line, text.splitlines())))


def metrics(text: str) -> str:
    """Return the lines of a scrape that delayq, Python or the process itself writes."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.startswith(("# ", "delayq_", "process_", "python_")))


def _value(value: Any, field: str) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, dict):
        return _mapping(value, field)
    if isinstance(value, list):
        if field == "command" and value[:1] and value[0] in COMMANDS:
            return [_urls(str(each)) for each in value]
        return [_value(each, field if isinstance(each, str) else "") for each in value]
    return _text(value, field) if isinstance(value, str) else value


def _mapping(mapping: Object, field: str) -> Object:
    if field in MAPS:
        ours = {key for key in mapping if key.startswith(OURS) and key != names.DOCUMENT}
        return {key: each if key in ours else LEFT_OUT for key, each in mapping.items()}
    if field == "terminated" and isinstance(mapping.get("message"), str):
        return _mapping({**mapping, "message": ""}, "") | {"message": log(mapping["message"])}
    return {key: _value(each, key) for key, each in mapping.items() if key != "managedFields"}


def _text(text: str, field: str) -> str:
    if field in FIELDS:
        return text
    if field in SENTENCES:
        return sentence(text)
    return _urls(text) if field in URLS else LEFT_OUT


def _source(event: Object) -> str:
    return str(event.get("reportingComponent") or (event.get("source") or {}).get("component", ""))


def _urls(text: str) -> str:
    return _URL.sub(_host, text)


def _host(url: re.Match[str]) -> str:
    """Return scheme and host; the scheme alone where the host could be a part of a password."""
    scheme, rest = url.groups()
    user, _, place = rest.rpartition("@")
    host = (_AUTHORITY.match(place) or [""])[0]
    plain = _AUTHORITY.fullmatch(user) and _HOST.fullmatch(host)
    return scheme + (host if plain else LEFT_OUT)


def _counted(lines: Iterable[str | None]) -> Iterator[str]:
    left_out = 0
    for line in lines:
        if line is None:
            left_out += 1
            continue
        if left_out:
            yield f"<{left_out} lines left out>"
        left_out = 0
        yield line
    if left_out:
        yield f"<{left_out} lines left out>"


def _line(line: str) -> str | None:
    if line.startswith("{"):
        return _event(line)
    if frame := _FRAME.match(line):
        return frame[0]
    return _error(line) if _ERROR.match(line) else None


def _event(line: str) -> str | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        return None
    if not str(found.get("logger", "")).startswith(LOGGERS):
        return None
    return json.dumps({name: _log_field(name, value) for name, value in found.items()}, ensure_ascii=False)


def _log_field(name: str, value: Any) -> Any:  # noqa: ANN401 -- JSON
    if name == "traceback" and isinstance(value, list):
        return [_raised(each) for each in value if isinstance(each, dict)]
    if isinstance(value, str) and name not in LOG_FIELDS:
        return log(value) if name == "trace" else _error(value)
    return LEFT_OUT if isinstance(value, dict | list) else value


def _raised(exception: dict[str, Any]) -> dict[str, Any]:
    """Return one exception of a handler's traceback: its type, and where its frames are."""
    frames = exception.get("frames")
    places = [sentence(str(each)) for each in frames] if isinstance(frames, list) else []
    return {"error": _error(str(exception.get("error"))), "frames": places}


def _error(text: str) -> str:
    return f"{error[0]}: {LEFT_OUT}" if (error := _ERROR.match(text)) else LEFT_OUT
