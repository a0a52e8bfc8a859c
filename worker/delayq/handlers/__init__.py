"""How a task reaches the user's code: a Python callable, an HTTP service or a command.

Each kind is imported only when a document asks for it: a worker that calls Python needs no aiohttp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.handlers.base import Handler, HandlerSetupError
from delayq.handlers.threads import cancelled

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.connection import Address
    from delayq.contract import DelayQueue, KindHandler
    from delayq.contract import Handler as HandlerSpec
    from delayq.handlers.base import Kinds
    from delayq.handlers.exec import ProcessGroups
    from delayq.handlers.signature import InvalidSignatureError, verify

__all__ = ["InvalidSignatureError", "cancelled", "verify"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- any object of the module
    """Import on first use: a worker without HTTP needs no HMAC."""
    if name in __all__:
        from delayq.handlers import signature  # noqa: PLC0415

        return getattr(signature, name)
    raise AttributeError(f"module 'delayq.handlers' has no attribute {name!r}")


def build(queue: DelayQueue, *, secrets_dir: Path, address: Address | None = None) -> Handler:
    """Return the handler that the document names; HandlerSetupError if it cannot run here.

    `address` is that of Redis, if it is not the document's.
    """
    builder = _Builder(queue, secrets_dir=secrets_dir, address=address)
    default, kinds = builder.default(), queue.spec.handler.kinds
    if not kinds:
        return default
    from delayq.handlers.routing import RoutingHandler  # noqa: PLC0415 -- see above

    routes = {kind: builder.route(kind, spec, default.kinds or {}) for kind, spec in kinds.items()}
    return RoutingHandler(default, routes, queue.spec.delivery)


class _Builder:
    """Makes the handlers of one document and process."""

    def __init__(self, queue: DelayQueue, *, secrets_dir: Path, address: Address | None = None) -> None:
        """See `build`."""
        self._queue, self._secrets_dir, self._address = queue, secrets_dir, address
        guard = queue.spec.guard
        self._transactions = guard is not None and guard.sql is not None
        self._groups: ProcessGroups | None = None

    def default(self) -> Handler:
        """Return the handler of all tasks, except for kinds that have their own."""
        spec, delivery = self._queue.spec.handler, self._queue.spec.delivery
        if spec.python and spec.python.app:
            from delayq.handlers.app import AppHandler, load  # noqa: PLC0415 -- see above

            app = load(spec.python.app)
            return AppHandler(app, self._queue, self._address, transactions=self._transactions)
        return self._make(spec, "spec.handler", delivery.handler_timeout_seconds)

    def route(self, kind: str, spec: KindHandler, known: Kinds) -> Handler:
        """Return the handler of one kind; `known` are those of the default handler."""
        versions = [delivery for (name, _), delivery in known.items() if name == kind]
        longest = max(each.handler_timeout_seconds for each in (self._queue.spec.delivery, *versions))
        return self._make(spec, f'spec.handler.kinds["{kind}"]', longest)

    def _make(self, spec: HandlerSpec | KindHandler, field: str, timeout_seconds: int) -> Handler:
        if spec.python and spec.python.callable:
            from delayq.handlers.python import PythonHandler  # noqa: PLC0415 -- see above

            return PythonHandler(
                spec.python.callable,
                concurrency=self._queue.spec.worker.concurrency,
                transactions=self._transactions,
                delivery=self._queue.spec.delivery,
                field=f"{field}.python.callable",
            )
        if spec.http:
            from delayq.handlers.http import HttpHandler  # noqa: PLC0415 -- see above

            seconds = min(spec.http.timeout_seconds or timeout_seconds, timeout_seconds)
            return HttpHandler(
                spec.http, timeout_seconds=seconds, secrets_dir=self._secrets_dir, field=f"{field}.http"
            )
        if spec.exec:
            from delayq.handlers.exec import ExecHandler, ProcessGroups  # noqa: PLC0415 -- see above

            self._groups = self._groups or ProcessGroups()
            return ExecHandler(spec.exec, groups=self._groups, field=f"{field}.exec")
        raise HandlerSetupError(field, "expected one of python, http, exec")
