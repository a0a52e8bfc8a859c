"""Checks the request line and the headers of a request, before its route runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from delayq.api.problems import ApiError, invalid

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

HEAD_BYTES: Final = 16 << 10
LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
SAFE: Final = ("GET", "HEAD")
SINGLE: Final = (b"host", b"authorization", b"content-type", b"origin", b"sec-fetch-site")
"""Headers that decide. If one came twice, a proxy may have checked the other value."""


def check_head(scope: Mapping[str, Any]) -> None:
    """Refuse heads that are too large, or that two programs may read in two ways."""
    headers = scope["headers"]
    size = len(scope["raw_path"]) + len(scope["query_string"])
    if size + sum(len(name) + len(value) for name, value in headers) > HEAD_BYTES:
        expected = f"expected at most {HEAD_BYTES:,} bytes of request line and headers"
        raise ApiError("header-too-large", f"{expected}, got more")
    names = [name for name, _ in headers]
    for name in SINGLE:
        if names.count(name) > 1:
            raise invalid(name.decode(), "expected this header once, got it several times")
    if "\ufffd" in scope["path"]:  # also what bytes that are not UTF-8 were replaced by
        try:
            unquote_to_bytes(scope["raw_path"]).decode()
        except UnicodeDecodeError:
            raise invalid("path", "expected percent-encoded UTF-8, got other bytes") from None


def check_site(method: str, headers: Mapping[str, str], accepted: Collection[str]) -> None:
    """Refuse what a web page of another site makes a browser send. `accepted`: names in the header Host."""
    host = headers.get("host", "").lower()
    if re.sub(r":[0-9]+$", "", host) not in accepted:
        detail = f"Host: expected {', '.join(sorted(accepted))}; --allow-host adds a name"
        raise ApiError("misdirected", detail)
    if method in SAFE:
        return
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    if site not in ("same-origin", "none") or (
        origin is not None and origin.lower().partition("://")[2] != host
    ):
        raise ApiError("cross-site", "a web page of another origin may not change the queue")
