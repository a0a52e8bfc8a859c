"""The API server by path, JSON in and JSON out: for the harness, and for tests that want to see every word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from kubernetes.config import new_client_from_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubernetes.client import ApiClient

Object: TypeAlias = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
TIMEOUT_S: Final = 30.0


class Refused(Exception):
    """The API server answered with a Status that is no success; `str` is its message.

    A path that is not served gets no Status, but a line of text.
    """

    def __init__(self, code: int, body: bytes) -> None:
        text = {"code": code, "message": body.decode(errors="replace").strip()}
        status: Object = json.loads(body) if body.startswith(b"{") else text
        super().__init__(status.get("message", ""))
        self.code: int = status.get("code", 0)
        self.reason: str = status.get("reason", "")
        self.causes: list[Object] = status.get("details", {}).get("causes", [])


class Rest:
    """Requests as the user of a kubeconfig; threads may share one."""

    def __init__(self, path: Path) -> None:
        self._client: ApiClient = new_client_from_config(str(path))  # type: ignore[no-untyped-call]
        self._url: str = self._client.configuration.host
        self._pool = self._client.rest_client.pool_manager
        bearer = self._client.configuration.auth_settings().get("BearerToken")
        self._headers: dict[str, str] = {"Authorization": bearer["value"]} if bearer else {}

    def close(self) -> None:
        self._client.close()  # type: ignore[no-untyped-call]

    def get(self, path: str, **query: str) -> Object:
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: str) -> list[Object]:
        return list(self.get(path, **query)["items"])

    def create(self, path: str, body: Object | bytes, **query: str) -> Object:
        return self.request("POST", path, body, query=query)

    def replace(self, path: str, body: Object, **query: str) -> Object:
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, body: Object, kind: str = MERGE, **query: str) -> Object:
        return self.request("PATCH", path, body, content_type=kind, query=query)

    def delete(self, path: str, body: Object | None = None, **query: str) -> Object:
        return self.request("DELETE", path, body, query=query)

    def request(
        self,
        method: str,
        path: str,
        body: Object | bytes | None = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Object:
        """The object or list that is the answer; raises Refused for a Status, urllib3's errors when none came.

        Empty when the answer is: an API server that has just got a CRD answers 200 and not one byte for its OpenAPI,
        after it serves the group and before it has a description.
        """
        answer = self._pool.request(
            method,
            self._address(path, query or {}),
            body=json.dumps(body) if isinstance(body, dict) else body,
            headers=self._headers | {"Content-Type": content_type},
            timeout=TIMEOUT_S,
            retries=False,
        )
        if answer.status >= 400:
            raise Refused(answer.status, answer.data)
        return dict(json.loads(answer.data)) if answer.data else {}

    def watch(
        self, path: str, *, since: str, timeout_s: float = 300, **query: str
    ) -> Iterator[tuple[str, Object]]:
        """Events after a resourceVersion, as (type, object), until the server ends the watch."""
        query |= {"watch": "1", "resourceVersion": since, "timeoutSeconds": str(int(timeout_s))}
        answer = self._pool.request(
            "GET",
            self._address(path, query),
            headers=self._headers,
            preload_content=False,
            retries=False,
            timeout=timeout_s + 10,
        )
        try:
            if answer.status >= 400:
                raise Refused(answer.status, answer.read())
            for line in _lines(answer.stream(amt=None)):
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            answer.close()

    def _address(self, path: str, query: dict[str, str]) -> str:
        return f"{self._url}{path}" + ("?" + urlencode(query) if query else "")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines; an answer that breaks off loses the last."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
