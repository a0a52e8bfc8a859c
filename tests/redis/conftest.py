"""What tests of single verbs ask for: one shard, and a clock that stands still. And clients of both kinds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, cast

import pytest
from delayq import Client, SyncClient

from tests.redis.state import Shard, shard_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import RedisServer


@pytest.fixture
def shard(redis_server: RedisServer, queue_name: str) -> Iterator[Shard]:
    with shard_on(redis_server, queue_name) as shard:
        yield shard


class Waiter:
    """Calls an asynchronous client as if it were a synchronous one."""

    def __init__(self, client: Client, runner: asyncio.Runner) -> None:
        self.client, self.runner = client, runner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  a method, or what both kinds know
        found = getattr(self.client, name)
        if not asyncio.iscoroutinefunction(found):
            return found
        return lambda *args, **named: self.runner.run(found(*args, **named))


class Make(Protocol):
    """Makes either kind of client."""

    def __call__(self, url: Any = ..., **options: Any) -> SyncClient: ...  # noqa: ANN401


@pytest.fixture(params=["async", "sync"])
def make(request: pytest.FixtureRequest, redis_server: RedisServer, queue_name: str) -> Iterator[Make]:
    """Each test of a client runs twice; both kinds are called in the same way."""
    closing: list[Callable[[], object]] = []
    runner = asyncio.Runner()

    def one(url: Any = redis_server.url, **options: Any) -> SyncClient:  # noqa: ANN401
        if request.param == "sync":
            client = SyncClient(url, queue=queue_name, **options)
            client.__enter__()
            closing.append(client.__exit__)
            return client
        asynchronous = Client(url, queue=queue_name, **options)
        runner.run(asynchronous.__aenter__())
        closing.append(lambda: runner.run(asynchronous.__aexit__()))
        return cast("SyncClient", Waiter(asynchronous, runner))

    yield one
    for close in closing:
        close()
    runner.close()


@pytest.fixture
def client(make: Make) -> SyncClient:
    return make()
