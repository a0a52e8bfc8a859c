"""Two versions of an object as a unified diff of YAML, without what nobody wrote. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

import yaml
from delayq_operator.base import names

if TYPE_CHECKING:
    from delayq.cli.kubectl.comparison import Compared
    from delayq.cli.kubectl.kubectl import Object

CONTEXT_LINES: Final = 3
_METADATA: Final = ("annotations", "labels")
_UNSAID: Final = frozenset(
    {
        names.APPLIED,
        names.INPUTS,
        names.CHECKSUM,
        names.PAUSED,
        "deployment.kubernetes.io/revision",
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)
"""Annotations that follow from the rest, and what is not the author's."""


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: texts of several lines as such, lists indented under their names."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 -- PyYAML's signature
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def of_queue(old: Object | None, new: Object) -> str:
    """Compare two DelayQueues; empty when they are the same."""
    name = new["metadata"]["name"]
    return _unified(f"{names.DELAY_QUEUE.kind} {name}", old and _written(old), _written(new))


def of_child(pair: Compared) -> str:
    """Compare a child with what it would be."""
    before, after = (each and _written(each) for each in (pair.before, pair.after))
    return _unified(f"{pair.kind} {pair.name}", before, after)


def _written(body: Object) -> Object:
    """Return what somebody wrote of an object."""
    metadata = {field: body["metadata"][field] for field in _METADATA if body["metadata"].get(field)}
    rest = {
        field: value
        for field, value in body.items()
        if field not in ("apiVersion", "kind", "metadata", "status")
    }
    found: Object = _said({"metadata": metadata, **rest})
    return {field: value for field, value in found.items() if value}


def _said(value: Any, field: str = "") -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if not (field == "annotations" and key in _UNSAID)}
        said = {key: _said(each, key) for key, each in kept.items()}
        return {key: each for key, each in said.items() if not (key == "annotations" and not each)}
    if isinstance(value, list):
        return [_said(each) for each in value]
    return None if field == "creationTimestamp" else value


def _unified(title: str, before: Object | None, after: Object | None) -> str:
    old, new = (_lines(each) for each in (before, after))
    names_ = (f"{title} (now)" if before else "nothing", f"{title} (then)" if after else "nothing")
    return "\n".join(difflib.unified_diff(old, new, *names_, lineterm="", n=CONTEXT_LINES))


def _lines(body: Object | None) -> list[str]:
    if not body:
        return []
    text = yaml.dump(body, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=1_000_000)
    return text.splitlines()
