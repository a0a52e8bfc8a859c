"""Objects of the API without what may be secret: known by where it stands. What it looks like is scrub.py's. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml
from delayq_operator import names

from delayq.plugin.loglines import own
from delayq.plugin.scrub import REDACTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.plugin.kubectl import Object

_DROPPED: Final = frozenset({"managedFields", "selfLink"})
_SECRET: Final = re.compile(
    r"pass(word|wd|phrase)?$|secret$|token$|api[_-]?key$|authorization$|credentials?$", re.IGNORECASE
)
_OURS: Final = ("delayq", "delayq-operator")
_KNOWN: Final = ("delayq.dev/", "app.kubernetes.io/", "batch.kubernetes.io/", "deployment.kubernetes.io/")
_TEXTS_OF_LOGS: Final = "message"


def redacted(body: Object, scrub: Callable[[str], str]) -> Object:
    """Return an object that may be shown to strangers."""
    if body.get("kind") == names.SECRET.kind:
        return {"kind": names.SECRET.kind, "metadata": {"name": body["metadata"]["name"]}}
    found: Object = _Redactor(scrub).value(body, "")
    if body.get("kind") == names.CONFIG_MAP.kind:
        found["data"] = {key: _document(text, scrub) for key, text in (body.get("data") or {}).items()}
        found.pop("binaryData", None)
    return found


def _document(text: str, scrub: Callable[[str], str]) -> str:
    """Redact what a ConfigMap holds, if it is a document of ours; else it is nobody's business."""
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError:
        return REDACTED
    if not isinstance(loaded, dict) or loaded.get("kind") != names.DELAY_QUEUE.kind:
        return REDACTED
    return yaml.safe_dump(redacted(loaded, scrub), sort_keys=False, allow_unicode=True)


class _Redactor:
    """Goes through an object; `field` is the name that a value stands under."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        self._scrub = scrub

    def value(self, value: Any, field: str) -> Any:  # noqa: ANN401 -- JSON
        if isinstance(value, dict):
            return self._mapping(value, field)
        if isinstance(value, list):
            return (
                _words(value, field)
                if _is_words(value, field)
                else [self.value(each, field) for each in value]
            )
        if isinstance(value, str):
            return REDACTED if _SECRET.search(field) else self._scrub(value)
        return value

    def _mapping(self, mapping: Object, field: str) -> Object:
        if field == "annotations":
            return {key: self._annotation(key, text) for key, text in mapping.items()}
        if field == "headers":
            return dict.fromkeys(mapping, REDACTED)
        if field == "env":
            return self._env(mapping)
        if field == "httpHeaders":
            return {**mapping, "value": REDACTED}
        found = {key: self.value(each, key) for key, each in mapping.items() if key not in _DROPPED}
        if field == "terminated" and isinstance(mapping.get(_TEXTS_OF_LOGS), str):
            found[_TEXTS_OF_LOGS] = self._scrub(own(mapping[_TEXTS_OF_LOGS]))
        return found

    def _env(self, mapping: Object) -> Object:
        """Keep what a variable of a container refers to; a value, never. An exec handler has names and values."""
        if "name" in mapping and set(mapping) <= {"name", "value", "valueFrom"}:
            return {**mapping, **({"value": REDACTED} if "value" in mapping else {})}
        return dict.fromkeys(mapping, REDACTED)

    def _annotation(self, key: str, text: str) -> str:
        if key == names.DOCUMENT:
            return _document(text, self._scrub)
        return self._scrub(text) if key.startswith(_KNOWN) else REDACTED


def _is_words(value: list[Any], field: str) -> bool:
    return field in ("command", "args") and all(isinstance(each, str) for each in value)


def _words(value: list[str], field: str) -> list[str]:
    """Keep which program it is; arguments only of ours, which take no secrets."""
    if field == "command" and value[:1] and value[0] in _OURS:
        return value
    kept = value[:1] if field == "command" else []
    return [*kept, *[REDACTED] * (len(value) - len(kept))]
