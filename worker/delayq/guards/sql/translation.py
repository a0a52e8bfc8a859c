"""From what goes wrong in a guard's step to what the worker understands."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import TimeoutError as PoolTimeout

from delayq.errors import InvalidDocument
from delayq.guards.sql.errors import meaning, told
from delayq.guards.sql.later import away, busy
from delayq.guards.sql.table import NAME
from delayq.guards.sql.urls import where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL

    from delayq.errors import GuardBusy, GuardUnavailable


@contextmanager
def translated(url: Callable[[], URL]) -> Iterator[None]:
    """Turn drivers' errors into GuardBusy and GuardUnavailable; what is neither stays what it is.

    Only a store that is away is nobody's fault. What a user's statement brings about is a failed attempt: uncharged, it
    would come again and again without end.
    """
    try:
        yield
    except InvalidDocument as error:
        raise away(where(url()), str(error)) from None
    except PoolTimeout:
        raise busy(
            f"every connection to {where(url())} is in use; raise maxConnections or lower worker.concurrency"
        ) from None
    except Exception as error:
        found = of(error, url())
        if found is None:
            raise
        raise found from error


def of(error: BaseException, url: URL) -> GuardBusy | GuardUnavailable | None:
    """Say what a driver's error means, None when it means nothing to a guard."""
    words = told(error, url)
    match meaning(error):
        case "busy":
            return busy(f"guard at {where(url)} is busy: {words}")
        case "unusable" if NAME in words:
            hint = "delayq guard init makes the table, and workers need to read and write it"
            return away(where(url), f"{words}: {hint}")
        case "unavailable":
            return away(where(url), words)
        case _:
            return None
