"""Errors of the API server of Kubernetes, by how callers handle them.

KubernetesError
├── ApiError               the API server answered with an error
│   ├── NotFound           404
│   ├── Conflict           409: another client changed it or owns the field, or it exists already
│   ├── Gone               410: that resourceVersion is too old to watch from
│   ├── Denied             401, 403: the rights do not suffice
│   ├── Invalid            400, 422: the object is not acceptable, and will not be next time either
│   └── Failed             another 5xx, about one request: an admission webhook, say; it may work next time
├── Unavailable            no answer, 429 or 5xx: try again
└── NoCluster              there is no cluster to connect to
"""

from __future__ import annotations

import json


class KubernetesError(Exception):
    """Base of all errors of a client of Kubernetes."""


class ApiError(KubernetesError):
    """The API server refused a request."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{message} ({code} {reason})")
        self.code, self.reason, self.message = code, reason, message
        self.causes: tuple[str, ...] = ()
        """Reasons of the Status' causes, such as NamespaceTerminating."""


class NotFound(ApiError):
    """There is no such object, or no such kind."""


class Conflict(ApiError):
    """Another client changed the object, owns a field of it, or created it first."""


class Gone(ApiError):
    """The resourceVersion is too old to watch from: list again."""


class Denied(ApiError):
    """The Role of the caller lacks a rule."""


class Invalid(ApiError):
    """The API server will not take this object."""


class Failed(ApiError):
    """The API server could not carry the request out, and may next time."""


class Unavailable(KubernetesError):
    """The API server gave no answer, or asked for patience."""


class NoCluster(KubernetesError):
    """There is no API server to connect to, or nothing to log in with."""


_SERVER_ERROR = 500
_AWAY = (429, 503, 504)
_BY_CODE = {400: Invalid, 401: Denied, 403: Denied, 404: NotFound, 409: Conflict, 410: Gone, 422: Invalid}

_UNACCEPTABLE = ("failed to create typed ", "failed to convert ")
"""How messages begin with which server-side apply answers 500 to a field that it does not know, or of a wrong type."""

_UNDISCOVERED = "cannot find RESTMapping for APIVersion"
"""Part of the message with which admission plugins answer 403 for seconds after a CustomResourceDefinition is created:
OwnerReferencesPermissionEnforcement does not know the kind of the owner yet."""

_STORE_AWAY = ("rpc error: code = Unavailable", "etcdserver: ", "context deadline exceeded")
"""How messages begin with which it answers 500 while its own store does not answer it."""


def refusal(code: int, reason: str, message: str) -> ApiError | Unavailable:
    """Make the error that an HTTP status stands for; `reason` and `message` are those of the Status in the answer."""
    if code < _SERVER_ERROR and code not in _AWAY and _UNDISCOVERED not in message:
        return _BY_CODE.get(code, ApiError)(code, reason, message)
    if code < _SERVER_ERROR or code in _AWAY or not message or message.startswith(_STORE_AWAY):
        return Unavailable(f"{message} ({code} {reason})".lstrip())
    return (Invalid if message.startswith(_UNACCEPTABLE) else Failed)(code, reason, message)


def answered(code: int, phrase: str, body: str | bytes | None) -> ApiError | Unavailable:
    """Make the error of a response, from its Status; one without it comes from a proxy, not from the API server."""
    try:
        found = json.loads(body or "")
    except ValueError:
        found = None
    status = found if isinstance(found, dict) else {}
    message = status.get("message") or ("" if status or code >= _SERVER_ERROR else phrase)
    error = refusal(code, status.get("reason") or phrase, message)
    if isinstance(error, ApiError):
        causes = (status.get("details") or {}).get("causes") or ()
        error.causes = tuple(str(cause.get("reason", "")) for cause in causes)
    return error
