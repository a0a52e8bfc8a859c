"""Connections to Redis. Only this package imports redis; what travels over them is built by commands.py.

Where and as whom: address, url, place, login, tls.
Pure, shared by both kinds: round_trip (calls to commands and back), routing and redirects (slots that move),
topology_state, slots and sentinels (who is the master), outage (why there is no answer).
For asyncio: aio, over single (one multiplexer) or cluster (a multiplexer for each node); connectors open connections,
discovery and asking find the master; blocking_reads wait for wake tokens.
For threads: sync, over a ticket with parts and a batch for each server; servers and pool hold the connections (a Wire
each), blocking_discovery finds the master, deadline bounds the waits.
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
