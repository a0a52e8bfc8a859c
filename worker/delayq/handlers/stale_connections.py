"""Close what a thread must not keep from one task to the next: stale connections of Django's ORM.

Django keeps a connection for each thread, and closes it when a request begins if it broke or is older than
CONN_MAX_AGE. A worker has no requests, and its threads live long: after a restart of the database, every task would
fail until the worker is restarted, too. Not here: coroutine functions, whose connections Django has in a thread of its
own (docs/how-to/handlers.md).
"""

from __future__ import annotations

import sys


def close_stale_connections() -> None:
    """Close those of this thread, as Django does when a request begins. Without Django, this is a look-up."""
    # Found and not imported: a worker whose code has not imported Django has no such connection. getattr, because
    # another thread may be importing it now.
    close = getattr(sys.modules.get("django.db"), "close_old_connections", None)
    if close is not None and sys.modules["django.conf"].settings.configured:
        close()
