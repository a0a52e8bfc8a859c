"""Text without secrets: known values wherever they stand, and whatever looks like one. Pure.

Known are the values of the Secrets that a queue names, in each form they take in a text; they never leave this module.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REDACTED: Final = "<redacted>"
SHORTEST: Final = 4
"""Shorter ones are in every text: taking them out would leave nothing to read, and tell the value."""

_WORDS: Final = (
    r"(?:pass(?:word|wd|phrase)?|secret|token|(?:api|access|private)[_-]?key|credential|authorization)"
)
_PATTERNS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), to)
    for pattern, to in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", REDACTED),
        (r"\b([a-z][a-z0-9+.-]*://)[^/\s\"'<>]*@", rf"\1{REDACTED}@"),
        (r"(\bauthorization[\"']?\s*[:=]\s*[\"']?)[^\r\n\"']+", rf"\1{REDACTED}"),
        (r"\b(bearer|basic|digest|apikey)\s+[A-Za-z0-9._~+/=-]{6,}", rf"\1 {REDACTED}"),
        (r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*)?", REDACTED),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", REDACTED),
        (r"\b(?:gh[pousr]|xox[a-z]|sk|pk|glpat)[_-][A-Za-z0-9_-]{16,}", REDACTED),
        # password=…, "password": "…", --token …; not passwordKey: …, which names a key.
        (
            rf"((?:\b|[_-]){_WORDS}[\"']?[ \t]*[:=][ \t]*)(?:\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\s,;&\"'<>{{}}\[\]]+)",
            rf"\1{REDACTED}",
        ),
        (rf"(--[a-z-]*{_WORDS}[a-z-]*[ =])\S+", rf"\1{REDACTED}"),
        (r"([?&][A-Za-z0-9_.-]+=)[^&\s\"'#<>]+", rf"\1{REDACTED}"),
    )
)
_REASONS: Final = (
    *(
        "Error",
        "Completed",
        "CrashLoopBackOff",
        "DeadlineExceeded",
        "Evicted",
        "NodeNotReady",
        "Unschedulable",
    ),
    *(
        "ContainerCannotRun",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "StartError",
    ),
    *("ErrImagePull", "ErrImageNeverPull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName"),
    *("OOMKilled", "ContainerStatusUnknown", "PodInitializing", "ContainerCreating"),
)
"""Why a pod is in trouble, in Kubernetes' words. Another word in their place is the pod's own."""

_SAID: Final = rf"(?P<reason>(?:{'|'.join(_REASONS)})(?=: |[\r\n]|$))?(?:: )?(?P<words>[^\r\n]*)"
_KILLED: Final = re.compile(r"killed by (?:SIG[A-Z0-9]+|signal \d+)")


class Scrubber:
    """Takes secrets out of texts."""

    def __init__(self, values: Iterable[str] = (), worker: str | None = None) -> None:
        """`values` are secrets that are known; `worker` names the Deployment whose pods are not to be quoted.

        Conditions and events quote the last words of pods, and those of a worker may be its handler's.
        """
        known = {form for value in values for form in _forms(value) if len(form) >= SHORTEST}
        longest_first = sorted(known, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if known else None
        self._quotation = None
        if worker is not None:
            self._quotation = re.compile(rf"\b({re.escape(worker)}-[a-z0-9]+-[a-z0-9]+: ){_SAID}")

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        if self._quotation is not None:
            text = self._quotation.sub(_unquoted, text)
        for pattern, to in _PATTERNS:
            text = pattern.sub(to, text)
        return text


def _unquoted(found: re.Match[str]) -> str:
    words = found["words"]
    if words and not _KILLED.fullmatch(words):
        words = "<last words left out>"
    return found[1] + ": ".join(part for part in (found["reason"], words) if part)


def _forms(value: str) -> Iterator[str]:
    """Yield every form in which a text may hold a value: as it is, encoded, escaped, and a URL's password alone."""
    for text in (value, value.strip(), *_lines(value), *_userinfo(value)):
        yield text
        yield json.dumps(text)[1:-1]
        yield quote(text, safe="")
        yield base64.b64encode(text.encode()).decode()
        yield base64.b64encode(text.encode()).decode().rstrip("=")


def _lines(value: str) -> list[str]:
    """Return the lines of a key or certificate, which a log may have one by one."""
    lines = [line.strip() for line in value.splitlines()]
    return [line for line in lines if len(line) >= 2 * SHORTEST] if len(lines) > 1 else []


def _userinfo(value: str) -> list[str]:
    found: list[str] = []
    for line in value.split():
        try:
            password = urlsplit(line).password
        except ValueError:
            continue
        if password:
            found += [password, unquote(password)]
    return found
