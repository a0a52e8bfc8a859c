"""Close what a thread must not keep from one task to the next: stale connections of Django's ORM.

Django keeps a connection for each thread, and closes it when a request begins or ends if it broke or is older than
CONN_MAX_AGE. A worker has no requests, and its threads live long: after a restart of the database, every task would
fail until the worker is restarted, too. Not here: coroutine functions, whose connections Django has in a thread of its
own (delayq/django.py).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def closer_of_stale_connections() -> Callable[[], None] | None:
    """Return what closes those of its thread, as Django does around a request; None without Django."""
    # Found and not imported: a worker whose code has not imported Django has no such connection. getattr, because
    # another thread may be importing it now.
    close = getattr(sys.modules.get("django.db"), "close_old_connections", None)
    if close is not None and sys.modules["django.conf"].settings.configured:
        return close  # type: ignore[no-any-return]
    return None
