"""The cause of an outage, by what real servers, OpenSSL and the kernel say to both kinds of client."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest
from delayq import DelayQError
from delayq.connection import Address, outages
from delayq.contract.outages import remedy
from redis.exceptions import RedisError

from tests.errors_page import replies
from tests.redis.conftest import clients
from tests.servers import PASSWORD, PREFERRED, USER, RedisServer
from tests.topologies.certificates import Tls
from tests.topologies.kinds import stopping
from tests.topologies.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from redis import Redis

    from tests.redis.conftest import Make

    Doing = Callable[[Any], Any]  # with redis-py's client

pytestmark = pytest.mark.one_server


@pytest.fixture(params=["async", "sync"])
def make(request: pytest.FixtureRequest, queue_name: str) -> Iterator[Make]:
    with clients(request.param, "", queue_name) as make:
        yield make


@pytest.fixture
def server(flavour: str, tmp_path: Path) -> Iterator[RedisServer]:
    with stopping(RedisServer.start(flavour, dir=tmp_path / "redis")) as server:
        yield server


def refused(make: Make, url: str) -> DelayQError:
    hasty = replace(Address.from_url(url), timeout_seconds=1.0)
    with pytest.raises(DelayQError) as error:
        make(hasty).counts()
    return error.value


def user(*rules: str) -> Doing:
    return lambda redis: redis.execute_command("ACL", "SETUSER", USER, *rules)


def config(name: str, value: str) -> Doing:
    return lambda redis: redis.config_set(name, value)


def as_it_is(_redis: object) -> None:
    """Change nothing."""


LOGINS: dict[str, tuple[Doing, Callable[[str], str], str]] = {
    "no such database": (as_it_is, lambda url: f"{url.removesuffix('0')}99", "no_database"),
    "a wrong password": (as_it_is, lambda url: url.replace(PASSWORD, "wrong"), "auth"),
    "a password where none is set": (as_it_is, lambda url: url.replace(f"{USER}:{PASSWORD}", ":pw"), "auth"),
    "no password": (
        config("requirepass", "s3cret"),
        lambda url: url.replace(f"{USER}:{PASSWORD}@", ""),
        "auth",
    ),
    "too many clients": (config("maxclients", "1"), str, "max_clients"),
    "no right to SELECT": (user("-select"), lambda url: f"{url.removesuffix('0')}1", "denied"),
    "no right to scripts": (user("-evalsha", "-eval"), str, "denied"),
}


@pytest.mark.parametrize("case", LOGINS)
def test_a_refused_login_has_its_cause_and_is_on_the_page(make: Make, server: RedisServer, case: str) -> None:
    change, altered, cause = LOGINS[case]
    with server.client() as redis:
        change(redis)
        error = refused(make, altered(server.url))
    assert error.outage == cause
    assert [reply for reply, of in replies().items() if of == cause and reply in str(error)], str(error)


def test_a_script_of_another_client_is_named(make: Make, server: RedisServer) -> None:
    def run() -> None:
        with server.client() as redis, suppress(RedisError):  # it is killed
            redis.eval("while true do end", 0)

    def busy(redis: Redis) -> bool:
        with suppress(RedisError):
            return not redis.ping()
        return True

    with server.client() as redis:
        redis.config_set("lua-time-limit", 10)
        other = threading.Thread(target=run)
        other.start()
        until(lambda: busy(redis), "the script is slow")
        assert refused(make, server.url).outage == "busy"
        redis.script_kill()
        other.join()


def test_tls_on_one_side_only_is_a_silence_or_a_closed_connection(
    make: Make, server: RedisServer, tmp_path: Path
) -> None:
    """A Redis without TLS waits for the rest of the handshake; one with TLS closes what is none."""
    assert refused(make, server.url.replace("redis://", "rediss://")).outage == "timeout"
    with serving(Tls(tmp_path / "tls"), tmp_path) as secure:
        plain = secure.url.partition("?")[0].replace("rediss://", "redis://")
        assert refused(make, plain).outage == "closed"
    for cause in ("timeout", "closed"):
        assert "spec.redis.tls (rediss://) fits the port" in remedy(cause).cure


def test_what_is_wrong_with_a_certificate_is_named(make: Make, tmp_path: Path) -> None:
    tls = Tls(tmp_path / "tls", names=("redis.test",))
    with serving(tls, tmp_path) as server:
        ours = [each for each in server.url.split("?")[1].split("&") if not each.startswith("ssl_cert")]
        assert refused(make, server.url).outage == "tls_name"
        assert refused(make, f"{without_query(server)}?ssl_check_hostname=no").outage == "tls_untrusted"
        with server.client() as redis:
            redis.config_set("tls-protocols", "TLSv1.2")  # 1.3 tells only after the handshake
        query = "&".join(each for each in ours if "keyfile" not in each)
        assert refused(make, f"{without_query(server)}?{query}&ssl_check_hostname=no").outage == "tls_client"
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    expired = tls.authority.issue_cert("127.0.0.1", not_before=long_ago, not_after=long_ago + timedelta(1))
    expired.private_key_pem.write_to_path(str(tls.server.key))
    expired.cert_chain_pems[0].write_to_path(str(tls.server.cert))
    with serving(tls, tmp_path / "expired") as server:
        assert refused(make, server.url).outage == "tls_expired"


@contextmanager
def serving(tls: Tls, tmp_path: Path) -> Iterator[RedisServer]:
    with stopping(RedisServer.start(PREFERRED, dir=tmp_path / "secure", tls=tls)) as server:
        yield server


def without_query(server: RedisServer) -> str:
    return server.url.partition("?")[0]


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ECONNREFUSED, "refused"),
        (errno.EHOSTUNREACH, "no_route"),
        (errno.ENETUNREACH, "no_route"),
        (errno.ECONNRESET, "closed"),
        (errno.EPIPE, "closed"),
        (errno.ENOSPC, "other"),
    ],
)
def test_the_kernels_error_has_a_cause_also_for_a_host_of_several_addresses(number: int, cause: str) -> None:
    """Of several addresses that fail differently, asyncio has only the text."""
    text = f"[Errno {number}] Connect call failed ('10.0.0.1', 6379)"
    several = [
        OSError(f"Multiple exceptions: {one}, {other}") for one, other in permutations((text, "[Errno 99] …"))
    ]
    for error in (OSError(number, "said"), *several):
        assert outages.of_failure(error) == cause


def test_a_server_that_is_not_redis_is_named(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answer, args=(listening,), daemon=True).start()
        assert refused(make, f"redis://127.0.0.1:{listening.getsockname()[1]}").outage == "not_redis"
        listening.shutdown(socket.SHUT_RDWR)


def answer(listening: socket.socket) -> None:
    with suppress(OSError):  # shut down
        while True:
            taken, _ = listening.accept()
            with taken:
                taken.recv(4096)
                taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
