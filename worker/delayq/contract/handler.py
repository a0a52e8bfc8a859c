"""spec.handler: what is called when a task falls due."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from delayq.contract.fields import dictionary, listing, section, sections_by_name, text, whole
from delayq.contract.http_service import HttpService
from delayq.contract.record import Shape
from delayq.contract.words import ARGUMENT, CALLABLE, TASK_KIND, VARIABLE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


MOST_KINDS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonHandler:
    """Python code, called inside the worker: exactly one of callable, app."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("callable", "app"))

    callable: str | None = text(
        CALLABLE,
        default=None,
        doc='Module and function, as in "shop.orders:cancel_unpaid"; async or not. It is called with every task.',
    )
    app: str | None = text(
        CALLABLE,
        default=None,
        doc='Module and App, as in "shop.tasks:app"; a function for each kind of task.',
    )

    @property
    def target(self) -> str:
        """Module and object, whichever is given."""
        return self.callable or self.app or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A Python function, called inside the worker."""

    callable: str = text(
        CALLABLE, doc='Module and function, as in "shop.orders:cancel_unpaid"; async or not.'
    )

    @property
    def target(self) -> str:
        """Module and function."""
        return self.callable


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpHandler(HttpService):
    """A POST to an HTTP service; its status code settles the task."""

    timeout_seconds: int | None = whole(
        1, 604_800, default=None, doc="Longest wait for the answer. Absent: handlerTimeoutSeconds."
    )
    max_connections: int = whole(
        1, 10_000, default=100, doc="Most connections one worker keeps to the service."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecHandler:
    """A command, run once per task with the payload on its standard input."""

    command: tuple[str, ...] = listing(
        ARGUMENT, least=1, most=100, doc="Program and arguments, run as they are, without a shell."
    )
    env: Mapping[str, str] = dictionary(
        name=VARIABLE_NAME,
        value=ARGUMENT,
        most=100,
        doc="Environment variables to add; not a place for secrets.",
    )
    max_output_bytes: int = whole(
        0,
        16_777_216,
        default=65_536,
        doc="Output kept for the log and the dead letter; the rest is read and dropped.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KindHandler:
    """What is called with tasks of one kind, in every version: exactly one of python, http, exec."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("python", "http", "exec"))

    python: PythonFunction | None = section(
        PythonFunction, default=None, doc="A Python function, called inside the worker."
    )
    http: HttpHandler | None = section(HttpHandler, default=None, doc="A POST to an HTTP service.")
    exec: ExecHandler | None = section(ExecHandler, default=None, doc="A command.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What is called when a task falls due: exactly one of python, http, exec."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("python", "http", "exec"))

    python: PythonHandler | None = section(
        PythonHandler,
        default=None,
        doc="Python code, called inside the worker: exactly one of callable, app.",
    )
    http: HttpHandler | None = section(HttpHandler, default=None, doc="A POST to an HTTP service.")
    exec: ExecHandler | None = section(ExecHandler, default=None, doc="A command.")
    kinds: Mapping[str, KindHandler] | None = sections_by_name(
        KindHandler,
        name=TASK_KIND,
        most=MOST_KINDS,
        doc="Kinds of task that have a handler of their own.",
    )

    @property
    def each(self) -> Iterator[Handler | KindHandler]:
        """The handler itself, and those of single kinds."""
        yield self
        yield from (self.kinds or {}).values()
