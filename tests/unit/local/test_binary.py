"""Which of the servers of a machine `delayq run` starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from delayq.local.binary import Server, choose
from delayq.local.errors import CannotRun
from delayq.local.releases import Kind, Release, numbers


def release(text: str) -> tuple[Kind, tuple[int, ...]]:
    """Of `redis 7.0.15`."""
    kind, _, version = text.partition(" ")
    return "valkey" if kind == "valkey" else "redis", numbers(version)


def chosen(found: str, data: str | None = None) -> str:
    servers = [Server(*release(each), Path(f"/{n}")) for n, each in enumerate(found.split(", ")) if found]
    server = choose(servers, Release(*release(data)) if data else None)
    return f"{server.kind} {'.'.join(map(str, server.version))}"


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ("redis 7.2.11, redis 8.2.2", "redis 8.2.2"),
        ("redis 8.2.2, redis 7.2.11", "redis 8.2.2"),
        ("redis 8.2.1, redis 7.2.11", "redis 7.2.11"),  # the newer one is vulnerable
        ("redis 7.0.15, valkey 9.1.2", "valkey 9.1.2"),  # README's machine: Debian's, and the wheel
        ("valkey 8.1.3, redis 6.2.14", "valkey 8.1.3"),  # both are vulnerable: the newest
        ("redis 4.0.14, redis 6.2.14", "redis 6.2.14"),
    ],
)
def test_the_newest_server_without_a_known_vulnerability_is_chosen(found: str, best: str) -> None:
    assert chosen(found) == best


@pytest.mark.parametrize(
    ("data", "found", "best"),
    [
        ("redis 6.2.14", "redis 7.0.15, valkey 9.1.2", "valkey 9.1.2"),
        ("redis 8.2.2", "redis 8.2.1, valkey 9.1.2", "redis 8.2.1"),  # Valkey does not read it
        ("valkey 8.1.4", "redis 8.4.0, valkey 9.1.2", "valkey 9.1.2"),
        ("redis 7.2.11", "redis 7.2.4", "redis 7.2.4"),  # of one release line
    ],
)
def test_only_a_server_that_reads_the_data_is_chosen(data: str, found: str, best: str) -> None:
    assert chosen(found, data) == best


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("redis 7.2.4", "redis 7.0.15"),
        ("valkey 9.1.2", "redis 8.4.0, valkey 8.1.4"),
        ("redis 7.4.6", "valkey 9.1.2"),
    ],
)
def test_an_older_server_never_opens_the_data_of_a_newer_one_and_both_are_named(
    data: str, found: str
) -> None:
    with pytest.raises(CannotRun) as raised:
        chosen(found, data)
    labels = [Release(*release(each)).label for each in (data, *found.split(", "))]
    assert all(label in str(raised.value) for label in labels)
    assert f"put {labels[0]} or a newer one on PATH" in raised.value.hint


@pytest.mark.parametrize(
    ("found", "said"), [("", "found none on PATH"), ("redis 4.0.14", "Redis 4.0.14 (/0)")]
)
def test_without_a_usable_server_the_ways_to_get_one_are_named(found: str, said: str) -> None:
    with pytest.raises(CannotRun) as raised:
        chosen(found)
    assert said in str(raised.value)
    assert "delayq[embedded]" in raised.value.hint
    assert "redis-server" in raised.value.hint
