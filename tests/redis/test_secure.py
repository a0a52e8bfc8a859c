"""TLS, users and passwords against real servers, for both kinds of client; and their rotation without a restart."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from delayq import DelayQError, NewTask, SyncClient, Unavailable
from delayq.connection import Address
from delayq.contract.acl import rule
from delayq.protocol.commands import Commands
from redis.exceptions import NoPermissionError, ResponseError

from tests.redis.conftest import clients
from tests.redis.proxy import proxy_to
from tests.servers import PASSWORD, PREFERRED, SPEAKS, USER, RedisServer
from tests.topologies.certificates import Tls
from tests.topologies.cluster import Cluster
from tests.topologies.kinds import stopping
from tests.topologies.secured import LOGIN, SHOWN, cut, mounted
from tests.topologies.sentinels import MASTER, Sentinels
from tests.unit.connection.mounted import mount, spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.redis.conftest import Make

pytestmark = pytest.mark.slow


@pytest.fixture(params=["async", "sync"])
def make(request: pytest.FixtureRequest, queue_name: str) -> Iterator[Make]:
    """Clients of either kind, called in the same way; the servers are each test's own."""
    with clients(request.param, "", queue_name) as make:
        yield make


@contextmanager
def serving(tmp_path: Path, tls: Tls | None = None, **config: str) -> Iterator[RedisServer]:
    with stopping(RedisServer.start(PREFERRED, dir=tmp_path / "redis", tls=tls, config=config)) as server:
        yield server


def address(secrets: Path, server: RedisServer, **tls: Any) -> Address:  # noqa: ANN401  of spec.redis.tls
    """The address in a document with this server, its user, its CA and a client certificate."""
    return logged_in(secrets, server, tls=SHOWN | tls)


def logged_in(secrets: Path, server: RedisServer, **tls: Any) -> Address:  # noqa: ANN401  spec.redis.tls, if any
    standalone = {"host": server.host, "port": server.port}
    return Address.from_spec(spec(standalone=standalone, auth=LOGIN, **tls), secrets)


def refused(client: SyncClient) -> Unavailable:
    with pytest.raises(Unavailable) as error:
        client.counts()
    return error.value


def reconnected(client: SyncClient) -> None:
    """The first call after a cut may meet the closed connection: it is repeated."""
    assert client.counts().waiting == 0


def test_a_client_trusts_the_authority_that_is_named_and_no_other_also_after_a_rotation(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = Tls(tmp_path / "tls")
    with serving(tmp_path, tls) as server:
        mounted(tmp_path, tls, authority=trustme.CA().cert_pem.bytes())
        error = refused(make(address(tmp_path, server)))
        assert error.outage == "tls_untrusted"
        assert "certificate verify failed" in str(error)
        with monkeypatch.context() as patch:  # the system's authorities count only where none is named
            patch.setenv("SSL_CERT_FILE", str(tls.ca))
            assert refused(make(address(tmp_path, server))).outage == "tls_untrusted"
            shown = {name: secret for name, secret in SHOWN.items() if name != "caSecretRef"}
            reconnected(make(logged_in(tmp_path, server, tls=shown)))
        mounted(tmp_path, tls)
        client = make(address(tmp_path, server))
        reconnected(client)
        reconnected(make(server.url))  # by rediss:// and files
        tls.renew(trustme.CA())
        with server.client() as redis:
            redis.config_set("tls-ca-cert-file", str(tls.ca), "tls-cert-file", str(tls.server.cert))
        cut(server)
        assert (
            refused(client).outage == "tls_untrusted"
        )  # the server has moved on, the mounted Secret not yet
        mounted(tmp_path, tls)
        reconnected(client)


def test_the_name_in_the_certificate_is_the_hosts_or_the_one_expected(make: Make, tmp_path: Path) -> None:
    tls = Tls(tmp_path / "tls", names=("redis.test",))
    with serving(tmp_path, tls) as server:
        mounted(tmp_path, tls)
        for wrong in ({}, {"serverName": "other.test"}):
            error = refused(make(address(tmp_path, server, **wrong)))
            assert error.outage == "tls_name"
            assert "mismatch" in str(error)
        reconnected(make(address(tmp_path, server, serverName="redis.test")))
        reconnected(make(f"{server.url}&ssl_server_name=redis.test"))
        reconnected(make(f"{server.url}&ssl_check_hostname=no"))


def test_a_password_rotates_while_calls_go_on_and_one_that_was_too_early_heals_by_itself(
    make: Make, tmp_path: Path
) -> None:
    """Redis takes both for as long as the old one is mounted: then no call fails."""
    with serving(tmp_path) as server, server.client() as redis:
        mount(tmp_path, "login", username=USER.encode(), password=PASSWORD.encode())
        client = make(logged_in(tmp_path, server))
        ended = threading.Event()

        def rotate() -> None:
            for number in range(5):
                new = f"new-{number}"
                redis.execute_command("ACL", "SETUSER", USER, f">{new}")
                mount(tmp_path, "login", password=new.encode())
                redis.execute_command("ACL", "SETUSER", USER, "resetpass", f">{new}")
                cut(server)
            ended.set()

        rotating = threading.Thread(target=rotate)
        rotating.start()
        calls = 0
        while not ended.is_set():
            client.counts()
            calls += 1
        rotating.join()
        assert calls
        redis.execute_command("ACL", "SETUSER", USER, "resetpass", ">s3cret-2")
        cut(server)
        error = refused(client)
        assert error.outage == "auth"
        assert "new-4" not in str(error)
        mount(tmp_path, "login", password=b"s3cret-2\n")
        reconnected(client)


def test_a_socket_and_a_database_of_its_own_serve_as_well(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a socket"
    with serving(tmp_path, unixsocket=str(path)) as server, server.client() as redis:
        url = f"unix://{USER}:{PASSWORD}@{str(path).replace(' ', '%20')}?db=3"
        client = make(url)
        client.schedule(None, delay_ms=60_000, task_id="a")
        assert client.address.where == str(path)
        assert make(server.url.replace("/0", "/3")).get("a") is not None
        assert make(url.removesuffix("?db=3")).get("a") is None
        assert redis.dbsize() == 0  # everything is in the other database


def test_a_user_needs_the_keys_of_its_prefix_and_is_refused_what_it_may_not(
    make: Make, tmp_path: Path
) -> None:
    with serving(tmp_path) as server, server.client() as redis:
        rights = rule("shop", redis=SPEAKS[PREFERRED]).split()
        redis.execute_command("ACL", "SETUSER", "shop", "on", ">p", *rights)
        url = f"redis://shop:p@{server.host}:{server.port}"
        client = make(url, key_prefix="shop")
        client.schedule(None, delay_ms=60_000, task_id="a")
        assert client.get("a") is not None
        assert all(str(key).startswith("shop:") for key in redis.keys("*"))
        with pytest.raises(DelayQError, match=r"NOPERM|permissions"):
            make(url).counts()
        redis.execute_command("ACL", "SETUSER", USER, "-zcard")
        denied = r"refused counts: .*(NOPERM|permissions|can't run this command)"
        with pytest.raises(DelayQError, match=denied) as error:
            make(server.url).counts()
        assert not isinstance(error.value, Unavailable)  # which would be tried again


def test_the_user_cannot_read_the_passwords_of_redis(tmp_path: Path) -> None:
    """They lie in the configuration, and CONFIG GET cannot be allowed for single settings."""
    with serving(tmp_path, requirepass="admin-pass") as server, server.client() as redis:
        rights = rule(redis=SPEAKS[PREFERRED]).split()
        redis.execute_command("ACL", "SETUSER", "handler", "on", ">p", *rights)
        redis.auth("p", "handler")
        for name in ("requirepass", "masterauth", "*"):
            with pytest.raises(NoPermissionError):
                redis.config_get(name)
            with pytest.raises(ResponseError, match="not allowed from script"):
                redis.eval("return redis.call('config', 'get', ARGV[1])", 0, name)


def test_the_user_of_a_queue_reaches_no_other_queue(make: Make, tmp_path: Path, queue_name: str) -> None:
    """Not even one whose name begins in the same way."""
    with serving(tmp_path) as server, server.client() as redis:
        rights = rule(queue=queue_name, redis=SPEAKS[PREFERRED]).split()
        redis.execute_command("ACL", "SETUSER", "tenant", "on", ">p", *rights)
        url = f"redis://tenant:p@{server.host}:{server.port}"
        client = make(url, shards=3)
        client.schedule_many([NewTask(n, delay_ms=60_000) for n in range(30)])
        assert client.counts().waiting == 30
        for other in (f"{queue_name}2", "payroll"):
            with SyncClient(server.url, queue=other) as theirs:
                theirs.schedule(None, delay_ms=60_000, task_id="salary")
                with (
                    SyncClient(url, queue=other) as foreign,
                    pytest.raises(DelayQError, match=r"NOPERM|permiss"),
                ):
                    foreign.cancel("salary")
                tasks, denied = Commands(other).keys(0).tasks, r"NOPERM|permiss|access"
                with server.client() as tenant:
                    tenant.auth("p", "tenant")
                    for command in (("UNLINK", tasks), ("EVAL", "redis.call('del', KEYS[1])", 1, tasks)):
                        with pytest.raises((NoPermissionError, ResponseError), match=denied):
                            tenant.execute_command(*command)
                assert theirs.get("salary") is not None


def test_sentinels_and_their_servers_speak_tls_with_logins_of_their_own(make: Make, tmp_path: Path) -> None:
    tls = Tls(tmp_path / "tls")
    with stopping(Sentinels.start(PREFERRED, dir=tmp_path / "sentinels", tls=tls)) as sentinels:
        mounted(tmp_path, tls)
        nodes = [{"host": each.host, "port": each.port} for each in sentinels.sentinels]

        def known_as(login: dict[str, Any]) -> SyncClient:
            sentinel = {"masterName": MASTER, "nodes": nodes, "auth": login}
            return make(Address.from_spec(spec(sentinel=sentinel, auth=LOGIN, tls=SHOWN), tmp_path))

        reconnected(known_as(LOGIN))
        reconnected(make(sentinels.url))
        mount(tmp_path, "other", username=USER.encode(), password=b"hunter2")
        error = refused(known_as({"passwordSecretRef": {"name": "other"}}))
        assert error.outage == "auth"
        assert "hunter2" not in str(error)


def test_a_cluster_speaks_tls(make: Make, tmp_path: Path) -> None:
    tls = Tls(tmp_path / "tls")
    started = Cluster.start(PREFERRED, dir=tmp_path / "cluster", tls=tls, replicas=False)
    with stopping(started) as cluster:
        mounted(tmp_path, tls)
        nodes = [{"host": each.host, "port": each.port} for each in cluster.nodes[:1]]
        redis = spec(cluster={"nodes": nodes}, auth=LOGIN, tls=SHOWN)
        reconnected(make(Address.from_spec(redis, tmp_path), shards=8))
        reconnected(make(cluster.url, shards=8))


def test_a_connection_that_was_forgotten_while_it_was_idle_costs_no_call(make: Make, tmp_path: Path) -> None:
    """As a firewall does: nothing is closed, and nothing gets through any more. The time-out is a minute."""
    with serving(tmp_path) as server, proxy_to(server.port) as proxy:
        place = f"redis://{USER}:{PASSWORD}@127.0.0.1:{proxy.listener.getsockname()[1]}"
        idle = replace(Address.from_url(place), timeout_seconds=60.0, health_check_seconds=0.0)
        client = make(idle)
        reconnected(client)
        proxy.forget()
        began = time.monotonic()
        reconnected(client)
        assert time.monotonic() - began < 30
