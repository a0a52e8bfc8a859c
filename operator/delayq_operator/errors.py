"""What can go wrong with the API server, told apart by what to do about it.

OperatorError
├── ApiError               the API server answered with an error
│   ├── NotFound           404
│   ├── Conflict           409: somebody else changed it, or owns the field, or it exists already
│   ├── Gone               410: that resourceVersion is too old to watch from
│   ├── Denied             401, 403: the operator's rights do not suffice
│   └── Invalid            400, 422: the object is not acceptable, and will not be next time either
├── Unavailable            no answer, 429 or 5xx: try again
├── NoCluster              there is no cluster to connect to
└── LeadershipLost         another operator leads
"""

from __future__ import annotations


class OperatorError(Exception):
    """Base of all errors of the operator."""


class ApiError(OperatorError):
    """The API server refused a request."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{message} ({code} {reason})")
        self.code, self.reason, self.message = code, reason, message


class NotFound(ApiError):
    """There is no such object, or no such kind."""


class Conflict(ApiError):
    """Somebody else changed the object, owns a field of it, or made it first."""


class Gone(ApiError):
    """The resourceVersion is too old to watch from: list again."""


class Denied(ApiError):
    """The operator may not do this: its Role lacks a rule."""


class Invalid(ApiError):
    """The API server will not take this object."""


class Unavailable(OperatorError):
    """The API server gave no answer, or asked for patience."""

    def __init__(self, why: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_seconds = retry_after_seconds


class NoCluster(OperatorError):
    """There is no API server to connect to: not in a pod, and no kubeconfig."""


class LeadershipLost(OperatorError):
    """Another operator holds the Lease."""


_BY_CODE = {400: Invalid, 401: Denied, 403: Denied, 404: NotFound, 409: Conflict, 410: Gone, 422: Invalid}


def refusal(code: int, reason: str, message: str) -> ApiError:
    """Make the error that an HTTP status stands for."""
    return _BY_CODE.get(code, ApiError)(code, reason, message)
