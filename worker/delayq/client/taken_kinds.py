"""Which tasks the handler of a document takes. A task that it does not take would be parked, maybe for ever.

Not here: arguments, which an App checks, and the parking of tasks that other clients store (0052).
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from delayq.errors import InvalidTask

if TYPE_CHECKING:
    from delayq.contract import Handler

ANYWAY: Final = "; if newer workers will know it, store it with unknown_kinds=True in from_document"


class TakenKinds:
    """The kinds of one document whose handler is Python."""

    def __init__(self, handler: Handler, anyway: str = ANYWAY) -> None:
        """`handler` is spec.handler; see `of`. `anyway`: how to store an unknown kind, the end of a sentence."""
        self._anyway = anyway
        self._routed = frozenset(handler.kinds or ())
        self._app = handler.python.app if handler.python else None

    @classmethod
    def of(cls, handler: Handler, anyway: str = ANYWAY) -> TakenKinds | None:
        """Return the kinds that the handler takes; None: every task, as http and exec do."""
        return cls(handler, anyway) if handler.python else None

    def check(self, task_id: str, kind: object, version: object) -> None:
        """Raise InvalidTask for a task that no worker of this document runs, by the kinds known in this process."""
        if kind is None:
            if self._app:
                why = f"required, but missing: each task of the App {self._app} has a kind"
                raise InvalidTask(task_id, f"kind: {why}{self._listed()}")
            return
        if kind in self._routed:
            return
        app = app_of(self._app)
        if (
            app.find(kind, version) if app is not None else self._app
        ):  # an App that is not here may have the kind
            return
        shown = f"{kind!r:.80} version {version!r:.20}"
        raise InvalidTask(task_id, f"kind: no handler takes {shown}{self._listed(kind)}{self._anyway}")

    @property
    def names(self) -> list[str]:
        """The names of the kinds known in this process."""
        app = app_of(self._app)
        return sorted({*self._routed, *((each.name for each in app) if app is not None else ())})

    def _listed(self, kind: object = "") -> str:
        names = self.names
        if similar := get_close_matches(str(kind), names, 1):
            return f"; did you mean {similar[0]}?"
        return (
            f"; it has {', '.join(names)}" if names else "" if self._app else "; spec.handler names no kind"
        )


def app_of(path: str | None) -> Any:  # noqa: ANN401 -- an App, whose package imports this one
    """Return the App `module:name` if this process has imported it; None if not."""
    module, _, name = (path or "").partition(":")
    found = reduce(lambda of, each: getattr(of, each, None), name.split("."), sys.modules.get(module))
    return found if hasattr(found, "find") else None
