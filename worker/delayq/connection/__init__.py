"""Connections to Redis. Only this package imports redis; what travels over them is built by commands.py.

Where and as whom: address, url, place, login, tls.
Pure, shared by both kinds: round_trip (calls to commands and back), routing and redirects (slots that move), books,
slots and sentinels (who is the master), outage (why there is no answer).
For asyncio: aio, over single (one line) or spread (a line for each node of a Cluster); line batches, openers connect,
directory and asking find the master; hints block.
For threads: sync, over a ticket with a part for each server; servers and pool hold the connections (a Wire each),
finder finds the master, deadline bounds the waits, forks begins anew in a child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.connection.address import Address
from delayq.connection.aio import AsyncConnection
from delayq.connection.blocking_reads import BlockingReads
from delayq.connection.round_trip import reason

if TYPE_CHECKING:
    from delayq.connection.sync import SyncConnection

__all__ = ["Address", "AsyncConnection", "BlockingReads", "SyncConnection", "reason"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the module holds
    """Import on first use: the processes of a queue wait on asyncio only."""
    if name == "SyncConnection":
        from delayq.connection.sync import SyncConnection  # noqa: PLC0415 -- see above

        return SyncConnection
    raise AttributeError(f"module 'delayq.connection' has no attribute {name!r}")
