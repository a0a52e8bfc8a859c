"""Why the client's own leader election is not used (decision 0049); a new client runs these again."""

from __future__ import annotations

import socket

import aiohttp
import pydantic
import pytest
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

NOW = "2026-01-01 00:00:00.000000"


async def test_the_clients_lock_cannot_make_its_lease() -> None:
    async with ApiClient(Configuration(host="http://127.0.0.1:1")) as client:
        lock = LeaseLock("lock", "shop", "me", client)
        with pytest.raises(pydantic.ValidationError, match="pretty"):
            await lock.create("lock", "shop", LeaderElectionRecord("me", "15", NOW, NOW))


async def test_an_api_server_that_is_away_ends_the_clients_election() -> None:
    """Its lock answers that it failed to an ApiException only; any other error leaves renew_loop()."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # without a listener
        async with ApiClient(Configuration(host=f"http://127.0.0.1:{unused.getsockname()[1]}")) as client:
            with pytest.raises(aiohttp.ClientConnectorError):
                await LeaseLock("lock", "shop", "me", client).get("lock", "shop")
