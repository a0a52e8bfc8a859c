"""What tests of single verbs ask for: one shard, and a clock that stands still. And clients of both kinds."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

import pytest
from delayq import Client, SyncClient
from delayq.connection import Address, AsyncConnection

from tests.redis.state import Shard, shard_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.topologies.kinds import Servers


@pytest.fixture
def shard(redis_server: Servers, queue_name: str) -> Iterator[Shard]:
    with shard_on(redis_server, queue_name) as shard:
        yield shard


@pytest.fixture
def orders(redis_server: Servers) -> Iterator[Shard]:
    """A shard of the queue that tests of commands name."""
    with shard_on(redis_server, "orders") as shard:
        yield shard


@pytest.fixture
async def connection(redis_url: str) -> AsyncIterator[AsyncConnection]:
    """As services have it."""
    connection = AsyncConnection(Address.from_url(redis_url))
    yield connection
    await connection.close()


class Waiter:
    """Calls an asynchronous client as if it were a synchronous one."""

    def __init__(self, client: Client, runner: asyncio.Runner) -> None:
        self.client, self.runner = client, runner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  a method, or what both kinds know
        found = getattr(self.client, name)
        if inspect.isasyncgenfunction(found):
            return lambda *args, **named: self._iterated(found(*args, **named))
        if not asyncio.iscoroutinefunction(found):
            return found
        return lambda *args, **named: self.runner.run(found(*args, **named))

    def _iterated(self, found: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:  # noqa: ANN401
            return await anext(found)

        with suppress(StopAsyncIteration):
            while True:
                yield self.runner.run(following())


class Make(Protocol):
    """Makes either kind of client."""

    def __call__(self, url: Any = ..., **options: Any) -> SyncClient: ...  # noqa: ANN401


@pytest.fixture(params=["async", "sync"])
def make(request: pytest.FixtureRequest, redis_server: Servers, queue_name: str) -> Iterator[Make]:
    """Each test of a client runs twice; both kinds are called in the same way."""
    with clients(request.param, redis_server.url, queue_name) as make:
        yield make


@contextmanager
def clients(kind: str, default: str, queue: str) -> Iterator[Make]:
    """Make clients of one kind, to some server by default, and close them all."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())

        def one(url: Any = default, **options: Any) -> SyncClient:  # noqa: ANN401  a URL or an Address
            if kind == "sync":
                return stack.enter_context(SyncClient(url, queue=queue, **options))
            asynchronous = Client(url, queue=queue, **options)
            runner.run(asynchronous.__aenter__())
            stack.callback(lambda: runner.run(asynchronous.__aexit__()))
            return cast("SyncClient", Waiter(asynchronous, runner))

        yield one


@pytest.fixture
def client(make: Make) -> SyncClient:
    return make()
