"""Handlers of single kinds, next to the handler of all other tasks (spec.handler.kinds)."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from delayq.guards.coverage import EVERY_TASK, NO_TASK
from delayq.handlers.base import Handler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from delayq.app.accepted import Described
    from delayq.contract import Delivery
    from delayq.contract.files import Reference
    from delayq.guards import Guard
    from delayq.guards.coverage import Coverage
    from delayq.handlers.base import Batch, HandlerCall
    from delayq.protocol.envelope import Task

log = logging.getLogger(__name__)


class RoutingHandler(Handler):
    """Calls the handler of a task's kind, or else the default one."""

    def __init__(self, default: Handler, routes: Mapping[str, Handler], delivery: Delivery) -> None:
        """`routes` has the handlers of single kinds.

        The default handler may know a routed kind too, as an App does from which the kind is scheduled: such a task is
        delivered as the App says.
        """
        self.handlers = (default, *routes.values())
        self.asking = default.asking
        if default.kinds is not None:
            self.kinds = {(kind, None): delivery for kind in routes} | dict(default.kinds)
        self._routes = routes
        self._warn_of_names()
        self._default_call = default.call
        self._calls = {kind: each.call for kind, each in routes.items()}
        self._opened = AsyncExitStack()  # the handlers that have started
        self.call = self._dispatch

    def _warn_of_names(self) -> None:
        """Log routes that may be misspelled: the App lacks the kind, and runs one with a similar name itself."""
        known = {kind for kind, _ in self.handlers[0].kinds or ()}
        for kind in self._routes.keys() - known:
            if similar := get_close_matches(kind, known - self._routes.keys(), 1):
                fields = {"kind": kind, "similar": similar[0]}
                log.warning("routed_kind_not_in_app", extra={"fields": fields})

    def _dispatch(self, task: Task) -> Awaitable[object]:
        return self._calls.get(task.kind, self._default_call)(task)

    def check(self, coverage: Coverage) -> None:
        """Check each handler with the tasks that it receives."""
        self.handlers[0].check(coverage)
        for kind, each in self._routes.items():
            each.check(EVERY_TASK if kind in coverage else NO_TASK)

    def under(self, guard: Guard[Any], coverage: Coverage = EVERY_TASK) -> HandlerCall:
        """Call each handler inside the guard's block, as it does by itself."""
        self._default_call = self.handlers[0].under(guard, coverage)
        self._calls = {kind: each.under(guard, coverage) for kind, each in self._routes.items()}
        return self.call

    @property
    def batches(self) -> Mapping[tuple[str, int], Batch]:  # type: ignore[override]  # nothing sets it
        """Those of the default handler that have no handler of their own."""
        batches = self.handlers[0].batches.items()
        return {kind: batch for kind, batch in batches if kind[0] not in self._routes}

    def described(self) -> Mapping[tuple[str, int], Described] | None:
        """Return those of the default handler that have no handler of their own."""
        found = self.handlers[0].described()
        if found is None:
            return None
        return {kind: each for kind, each in found.items() if kind[0] not in self._routes}

    def lacks(self) -> dict[Reference, str]:
        """Return what any of them lacks."""
        return {file: why for each in self.handlers for file, why in each.lacks().items()}

    async def start(self) -> None:
        """Start all handlers; close those that have started if one cannot."""
        async with AsyncExitStack() as stack:
            for each in self.handlers:
                await each.start()
                stack.push_async_callback(each.close)
            self._opened = stack.pop_all()

    async def close(self) -> None:
        """Close all handlers, the default one last."""
        await self._opened.aclose()
