"""Connections to Redis. Only this package imports redis. protocol/commands.py builds the commands they send.

Address and login: address, url, place, login, tls.
Without I/O, shared by both kinds: round_trip (calls to commands, replies to results and errors), outages (the causes of
errors), routing (slots that move), topology_state, slots and sentinels (which server is the master).
For asyncio: aio, on top of one multiplexer, or of cluster (a multiplexer for each node). connectors open connections,
discovery and query find the master, blocking_reads wait for wake tokens.
For threads: sync, on top of a ticket with a batch for each server. pool holds the connections (a Wire each), permits
bound their number, blocking_discovery finds the master, deadline bounds the waits, and interrupts tells exceptions of
signal handlers from those of the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.connection.address import Address
from delayq.connection.aio import AsyncConnection
from delayq.connection.blocking_reads import BlockingReads
from delayq.connection.outages import DENIED
from delayq.connection.round_trip import reason, translated

if TYPE_CHECKING:
    from delayq.connection.sync import SyncConnection

__all__ = ["DENIED", "Address", "AsyncConnection", "BlockingReads", "SyncConnection", "reason", "translated"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- as the signature of __getattr__ requires
    """Import on first use: worker, scanner and reaper use asyncio only."""
    if name == "SyncConnection":
        from delayq.connection.sync import SyncConnection  # noqa: PLC0415 -- see above

        return SyncConnection
    raise AttributeError(f"module 'delayq.connection' has no attribute {name!r}")
