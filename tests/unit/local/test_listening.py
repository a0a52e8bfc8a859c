"""What --host means for the servers of a run."""

from __future__ import annotations

import socket

import pytest
from delayq.local import listening
from delayq.local.errors import CannotRun


@pytest.mark.parametrize(
    ("host", "redis", "scraped"),
    [
        ("127.0.0.1", ["127.0.0.1"], "127.0.0.1"),
        ("127.0.0.2", ["127.0.0.1", "127.0.0.2"], "127.0.0.2"),
        ("0.0.0.0", ["0.0.0.0"], "127.0.0.1"),  # noqa: S104 -- nothing listens there
    ],
)
def test_the_run_and_its_commands_reach_redis_at_the_loopback_address(
    host: str, redis: list[str], scraped: str
) -> None:
    assert listening.of_redis(host) == redis
    assert listening.scraped(host) == scraped


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="a kernel without IPv6")
@pytest.mark.parametrize(
    ("host", "redis", "scraped"),
    [("*", ["0.0.0.0", "::"], "127.0.0.1"), ("::1", ["127.0.0.1", "::1"], "[::1]")],  # noqa: S104 -- as above
)
def test_addresses_of_ipv6_are_taken(host: str, redis: list[str], scraped: str) -> None:
    assert listening.of_redis(host) == redis
    assert listening.scraped(host) == scraped


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", ""])
def test_a_host_that_is_not_here_is_an_error_before_anything_starts(host: str) -> None:
    """The address is one of documentation: no machine has it."""
    with pytest.raises(CannotRun, match=f"cannot listen on --host {host}: ") as raised:
        listening.addresses(host)
    assert "127.0.0.1" in raised.value.hint


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])  # noqa: S104 -- as above
def test_only_servers_that_other_machines_reach_are_a_warning(
    host: str, *, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listening.warn(host, "Redis on port 1")
    assert caplog.messages == ["reachable_from_network"] * warned
    for record in caplog.records:
        reachable = record.fields["reachable"]  # type: ignore[attr-defined]  # delayq's own
        assert reachable == "metrics and probes of every process, without a password; Redis on port 1"
