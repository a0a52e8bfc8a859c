"""spec.recovery: the check that decides about a task whose lease has expired."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from delayq.contract.fields import choice, section, text, whole
from delayq.contract.http_service import HttpService
from delayq.contract.record import Shape
from delayq.contract.words import CALLABLE

OnFailure = Literal["Wait", "Requeue", "Complete", "Bury"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCheck:
    """A Python function, called with the task; it returns a verdict."""

    callable: str = text(
        CALLABLE, doc='Module and function, as in "shop.orders:state"; async or not. It returns the verdict.'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCheck(HttpService):
    """A POST to an HTTP service, which answers with a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardCheck:
    """The record of the task in the SQL guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Decides about a task whose lease expired: exactly one of python, http, guard."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("python", "http", "guard"))

    python: PythonCheck | None = section(PythonCheck, default=None, doc="A Python function.")
    http: HttpCheck | None = section(HttpCheck, default=None, doc="A POST to an HTTP service.")
    guard: GuardCheck | None = section(
        GuardCheck, default=None, doc="The record of the task in the queue's SQL guard."
    )
    timeout_seconds: int = whole(
        1, 300, default=5, doc="Longest wait for the verdict; then the check has failed."
    )
    on_failure: OnFailure = choice(
        "Wait",
        "Requeue",
        "Complete",
        "Bury",
        default="Wait",
        doc="The verdict when the check fails. Wait risks a delay, Requeue a second effect.",
    )
    retry_after_seconds: int = whole(
        1,
        86_400,
        default=30,
        doc="After the verdict wait: time until the check asks about the task again.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How scanners and reapers recover tasks whose lease expired."""

    check: Check | None = section(
        Check,
        default=None,
        doc="What decides whether a task whose lease expired still has to run. Absent: it runs again.",
    )
