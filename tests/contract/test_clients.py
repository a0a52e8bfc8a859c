"""Client and SyncClient are one thing with two ways of waiting."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from delayq import Client, SyncClient

METHODS = sorted(
    name
    for client in (Client, SyncClient)
    for name, member in vars(client).items()
    if inspect.isfunction(member) and not name.startswith("_")
)


@pytest.mark.parametrize("name", sorted(set(METHODS)))
def test_both_have_the_method_with_the_same_signature(name: str) -> None:
    """Names, order, kinds, defaults and types."""
    one, other = getattr(Client, name), getattr(SyncClient, name)
    assert inspect.signature(one) == inspect.signature(other)
    assert inspect.iscoroutinefunction(one)
    assert not inspect.iscoroutinefunction(other)


@pytest.mark.parametrize("name", sorted(set(METHODS)))
def test_a_docstring_is_written_once(name: str) -> None:
    assert inspect.getdoc(getattr(Client, name))
    assert inspect.getdoc(getattr(SyncClient, name)) == f"See Client.{name}."


@pytest.mark.parametrize(
    "names", [{"queue": "A B"}, {"queue": ""}, {"queue": "a:b"}, {"queue": "a", "key_prefix": "shop:eu"}]
)
@pytest.mark.parametrize("client", [Client, SyncClient])
def test_a_queue_that_no_document_can_name_is_refused(
    client: type[Client | SyncClient], names: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"^(queue|key_prefix): expected at most "):
        client("redis://localhost", **names)
    assert client("redis://localhost", queue="eu.orders").queue == "eu.orders"


def test_both_wait_for_the_same_things() -> None:
    """The drivers are line for line the same, but for the waiting, and how what was started is given up."""
    plain = re.sub(r"\basync |\bawait ", "", _driver(Client))
    assert plain == _driver(SyncClient)


def _driver(client: type) -> str:
    before_giving_up = inspect.getsource(vars(client)["_do"]).partition("        finally:")[0]
    return re.sub(r"started: set\[.+\] =", "started =", before_giving_up)


def test_both_are_made_in_the_same_way() -> None:
    assert inspect.signature(Client) == inspect.signature(SyncClient)
    assert inspect.signature(Client.from_document) == inspect.signature(SyncClient.from_document)


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="not open: use it inside `with`"):
        SyncClient(queue="q").counts()
    with pytest.raises(RuntimeError, match="not open: use it inside `async with`"):
        await Client(queue="q").counts()
    async with Client(queue="q") as closed:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        await closed.schedule(1, delay_ms=0)


async def test_a_client_is_opened_and_closed_as_often_as_needed() -> None:
    """A web framework's hooks may run twice, and close what was never opened. Opening connects to nothing."""
    client, other = Client("redis://192.0.2.1", queue="q"), SyncClient("redis://192.0.2.1", queue="q")
    await client.close()
    other.close()
    assert await client.open() is client
    assert other.open() is other
    opened = client._connection, other._connection
    await client.open()
    other.open()
    assert (client._connection, other._connection) == opened
    await client.close()
    other.close()
    await client.close()
    other.close()
    with pytest.raises(RuntimeError, match=r"or call open\(\)"):
        await client.counts()
    with pytest.raises(RuntimeError, match=r"or call open\(\)"):
        other.counts()
    async with client:
        assert client._connection is not opened[0]
    with other:
        assert other._connection is not opened[1]
