"""Connections to Redis. Only this package imports redis; what travels over them is built by broker.py."""

from delayq.connection.address import Address
from delayq.connection.aio import AsyncConnection
from delayq.connection.hints import Hints
from delayq.connection.round_trip import reason
from delayq.connection.sync import SyncConnection

__all__ = ["Address", "AsyncConnection", "Hints", "SyncConnection", "reason"]
