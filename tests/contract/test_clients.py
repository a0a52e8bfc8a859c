"""Client and SyncClient are one thing with two ways of waiting."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from delayq import Client, SyncClient

METHODS = {
    name
    for client in (Client, SyncClient)
    for name, member in vars(client).items()
    if inspect.isfunction(member) and not name.startswith("_")
}


OWN_WORDS = {"open": "It keeps at most `max_connections`", "schedule": "Calls of several threads"}
"""Where the docstring of the SyncClient says something else at its end."""


def test_both_have_the_same_methods_with_the_same_signatures_and_docstrings() -> None:
    """Names, order, kinds, defaults and types. The text is in both sources, where editors look for it."""
    assert inspect.signature(Client) == inspect.signature(SyncClient)
    assert inspect.signature(Client.from_document) == inspect.signature(SyncClient.from_document)
    for name in METHODS:
        one, other = getattr(Client, name), getattr(SyncClient, name)
        assert same_parameters(one, other), name
        waits = inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
        assert (waits, inspect.iscoroutinefunction(other)) == (True, False), name
        texts = [(each.__doc__ or "").strip() for each in (one, other)]
        if name in OWN_WORDS:
            head, words, _ = texts[1].partition(OWN_WORDS[name])
            assert words, name
            texts = [texts[0][: len(head.rstrip())], head.rstrip()]
        assert texts[0], name
        assert texts[0] == texts[1], name
        assert "await" not in texts[1], name


def same_parameters(one: Any, other: Any) -> bool:  # noqa: ANN401  methods
    """But for the size of the pool, which only a SyncClient has, and what is iterated over."""
    signature = inspect.signature(other)
    iterates = str(signature.return_annotation).startswith("Iterator[")
    if iterates:
        signature = signature.replace(return_annotation=f"Async{signature.return_annotation}")
    shared = [each for name, each in signature.parameters.items() if name != "max_connections"]
    return inspect.signature(one) == signature.replace(parameters=shared)


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
    """The drivers are line for line the same, but for the waiting, and how what was started is given up.

    A coroutine may continue on the connection with which it began, after the client was closed.
    """
    own_connection = r", connection: AsyncConnection \| None = None|connection or (?=self)"
    plain = re.sub(rf"\basync |\bawait |{own_connection}", "", _driver(Client))
    assert plain == _driver(SyncClient)


def _driver(client: type) -> str:
    before_giving_up = inspect.getsource(vars(client)["_do"]).partition("        finally:")[0]
    return re.sub(r"started: set\[.+\] =", "started =", before_giving_up)


async def test_a_client_is_opened_and_closed_as_often_as_needed_and_says_when_it_is_not_open() -> None:
    """A web framework's hooks may run twice, and close what was never opened. Opening connects to nothing."""
    client, other = Client("redis://192.0.2.1", queue="q"), SyncClient("redis://192.0.2.1", queue="q")

    async def neither_is_open() -> None:
        with pytest.raises(RuntimeError, match=r"not open: use it inside `async with`.*or call open\(\)"):
            await client.counts()
        with pytest.raises(RuntimeError, match=r"not open: use it inside `with`.*or call open\(\)"):
            other.counts()

    for _ in range(2):
        await client.close()
        other.close()
        await neither_is_open()
    opened = set[object]()
    for _ in range(2):
        assert await client.open() is client
        assert other.open() is other
        opened |= {client._connection, other._connection}
    assert len(opened) == 2
    await client.close()
    other.close()
    await neither_is_open()
    async with client:
        assert client._connection not in opened
    with other:
        assert other._connection not in opened
