"""The headers of a delivery: a function of the task. Not here: sending it (`http.py`).

Nothing a producer writes can add or end a header: a value that is not plain visible ASCII travels as RFC
8187 text (`UTF-8''caf%C3%A9`), a name that is not letters, digits, hyphens or underscores is
percent-encoded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from delayq.errors import Bury
from delayq.handlers import signature

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task

OWN_PREFIX = "delayq-"
OWN_NAMES = frozenset({"content-length", "content-type", "idempotency-key", "transfer-encoding"})
EXTENDED = "UTF-8''"

_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")  # no space at either end: receivers strip it


def headers(task: Task) -> dict[str, str]:
    """Return every header that comes from the task."""
    task_id = encode(task.id)
    return {
        "Content-Type": _content_type(task),
        "Idempotency-Key": f"{encode(task.queue)}/{task_id}",
        "Delayq-Queue": encode(task.queue),
        signature.TASK_ID: task_id,
        signature.ATTEMPT: str(task.attempt),
        "Delayq-Token": str(task.token),
        "Delayq-Due-Ms": str(task.due_ms),
        "Delayq-Scheduled-Ms": str(task.scheduled_ms),
    } | {
        f"Delayq-Header-{quote(name, safe='', errors='surrogatepass')}": encode(value)
        for name, value in task.headers.items()
    }


def encode(value: str) -> str:
    """Return what a header can carry; a value that looks encoded is encoded too, so decoding is certain."""
    if _PLAIN.fullmatch(value) and not value.startswith(EXTENDED):
        return value
    return EXTENDED + quote(value, safe="", errors="surrogatepass") if value else ""


def reserved(name: str) -> bool:
    """Tell whether delayq sets this header itself."""
    return name.lower().startswith(OWN_PREFIX) or name.lower() in OWN_NAMES


def _content_type(task: Task) -> str:
    if not _PLAIN.fullmatch(task.content_type):
        raise Bury(f"content type {task.content_type!a} cannot be sent as an HTTP header")
    return task.content_type
