"""How a task reaches the user's code: a Python callable, an HTTP service or a command.

Each kind is imported only when a document asks for it: a worker that calls Python needs no aiohttp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.handlers.base import Handler, HandlerSetupError
from delayq.handlers.threads import cancelled

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.connection import Address
    from delayq.contract import DelayQueue

__all__ = ["Handler", "HandlerSetupError", "build", "cancelled"]


def build(queue: DelayQueue, *, secrets_dir: Path, address: Address | None = None) -> Handler:
    """Return the handler that the document names; HandlerSetupError if it cannot run here.

    `address` is that of Redis, if it is not the document's.
    """
    spec, guard, concurrency = queue.spec.handler, queue.spec.guard, queue.spec.worker.concurrency
    transactions = guard is not None and guard.sql is not None
    if spec.python and spec.python.callable:
        from delayq.handlers.python import PythonHandler  # noqa: PLC0415 -- see above

        return PythonHandler(
            spec.python.callable,
            concurrency=concurrency,
            transactions=transactions,
            delivery=queue.spec.delivery,
        )
    if spec.python and spec.python.app:
        from delayq.handlers.app import AppHandler, load  # noqa: PLC0415 -- see above

        return AppHandler(load(spec.python.app), queue, address, transactions=transactions)
    if spec.http:
        from delayq.handlers.http import HttpHandler  # noqa: PLC0415 -- see above

        timeout_seconds = _http_timeout(
            spec.http.timeout_seconds, queue.spec.delivery.handler_timeout_seconds
        )
        return HttpHandler(spec.http, timeout_seconds=timeout_seconds, secrets_dir=secrets_dir)
    if spec.exec:
        from delayq.handlers.exec import ExecHandler  # noqa: PLC0415 -- see above

        return ExecHandler(spec.exec)
    raise HandlerSetupError("spec.handler", "expected one of python, http, exec")


def _http_timeout(own_seconds: int | None, handler_seconds: int) -> int:
    return handler_seconds if own_seconds is None else min(own_seconds, handler_seconds)
