"""URLs: every topology, what stands for what is left out, and that a wrong one is never quoted."""

from __future__ import annotations

from pathlib import Path

import pytest
from delayq.connection import Address
from delayq.connection.place import Place
from delayq.errors import InvalidDocument

SECRET = "hunter2"  # noqa: S105  not a real one


def credentials(address: Address) -> tuple[str, ...]:
    return address.login.get_credentials() if address.login else ()


@pytest.mark.parametrize(
    ("url", "places", "database", "words"),
    [
        ("redis://", [Place("localhost", 6379)], 0, ()),
        ("redis://a", [Place("a", 6379)], 0, ()),
        ("redis://a:7/3", [Place("a", 7)], 3, ()),
        ("redis://a:7/?db=3", [Place("a", 7)], 3, ()),
        ("redis://:p@a", [Place("a", 6379)], 0, ("p",)),
        ("redis://u:p@a/0", [Place("a", 6379)], 0, ("u", "p")),
        ("redis://u:p%40%2F%3A%23%3F%25@a/0", [Place("a", 6379)], 0, ("u", "p@/:#?%")),
        ("redis://a?username=u&password=p", [Place("a", 6379)], 0, ("u", "p")),
        ("redis://[::1]:7", [Place("::1", 7)], 0, ()),
        ("redis://[::1]", [Place("::1", 6379)], 0, ()),
        ("unix:///run/redis.sock", [Place("/run/redis.sock", 0)], 0, ()),
        ("unix:///run/a%20b?db=2", [Place("/run/a b", 0)], 2, ()),
        ("unix://u:p@/run/redis.sock", [Place("/run/redis.sock", 0)], 0, ("u", "p")),
    ],
)
def test_a_url_names_one_server(url: str, places: list[Place], database: int, words: tuple[str, ...]) -> None:
    address = Address.from_url(url)
    assert (address.kind, list(address.places), address.database) == ("standalone", places, database)
    assert credentials(address) == words
    assert not address.is_cluster
    assert address.tls is None


def test_a_url_names_a_master_by_its_sentinels() -> None:
    address = Address.from_url("redis+sentinel://u:p@a,b:7/shop/4?sentinel_username=s&sentinel_password=t")
    assert (address.kind, address.master_name, address.database) == ("sentinel", "shop", 4)
    assert address.places == (Place("a", 26_379), Place("b", 7))
    assert credentials(address) == ("u", "p")
    assert address.where == "sentinel shop at a:26379, b:7"
    assert [each.where for each in address.sentinels] == ["a:26379", "b:7"]
    assert [credentials(each) for each in address.sentinels] == [("s", "t"), ("s", "t")]
    assert {(each.kind, each.database) for each in address.sentinels} == {("standalone", 0)}
    assert Address.from_url("redis+sentinel://a/shop").database == 0


@pytest.mark.parametrize("end", ["", "/", "/0"])
def test_a_url_names_a_cluster_by_some_of_its_nodes(end: str) -> None:
    address = Address.from_url(f"redis+cluster://:p@a,b:7001,[::1]:7002{end}")
    assert (address.kind, address.is_cluster, address.database) == ("cluster", True, 0)
    assert address.places == (Place("a", 6379), Place("b", 7001), Place("::1", 7002))
    assert address.where == "cluster at a:6379, b:7001, [::1]:7002"
    assert address.sentinels == ()
    assert Address.from_url("redis+cluster://a,b,c,d").where == "cluster at a:6379, b:6379, c:6379, …"


@pytest.mark.parametrize("url", ["redis+sentinel://u:p@a/shop/4", "redis+cluster://u:p@a"])
def test_the_servers_of_a_topology_are_reached_alike(url: str) -> None:
    whole = Address.from_url(url)
    one = whole.at(Place("b", 7))
    assert (one.kind, one.where, one.database) == ("standalone", "b:7", whole.database)
    assert credentials(one) == ("u", "p")
    with pytest.raises(ValueError, match="expected the address of one server"):
        whole.connection()


def test_a_second_s_means_tls_with_its_ca_and_client_certificate() -> None:
    for url in ("rediss://a", "rediss+cluster://a,b", "rediss+sentinel://a/shop"):
        plain = Address.from_url(url).tls
        assert plain is not None
        assert (plain.authority, plain.certificate, plain.server_name) == (None, None, None)
        assert (plain.verified, plain.named) == (True, True)
    options = "ssl_ca_certs=/ca&ssl_certfile=/cert&ssl_keyfile=/key&ssl_server_name=redis.test&ssl_check_hostname=no"
    tls = Address.from_url(f"rediss://a?{options}").tls
    assert tls is not None
    assert [each.path for each in (tls.authority, tls.certificate, tls.key) if each] == [
        Path("/ca"),
        Path("/cert"),
        Path("/key"),
    ]
    assert (tls.server_name, tls.verified, tls.named) == ("redis.test", True, False)


@pytest.mark.parametrize(
    "url",
    [
        "hunter2",
        "http://x:hunter2@a",
        "redis://:hun/ter2@b:1",
        "redis://:hunter2@a:0",
        "redis://:hunter2@a:65536",
        "redis://:hunter2@a,b",
        "redis://:hunter2@a/shop",
        "redis://:hunter2@a#hunter2",
        "redis://:?hunter2=1@a",
        "redis://:hunter2@a?db",
        "redis://a?hunter2@b",
        "unix://:hunter2@",
        "redis+cluster://:hunter2@",
        "redis+cluster://:hunter2@a/1",
        "redis+sentinel://:hunter2@a/shop/hunter2",
        "redis+proxy://:hunter2@a",
        "rediss://:hunter2@a?ssl_keyfile=/key",
        "rediss://:hunter2@a?ssl_cert_reqs=hunter2",
        "rediss://:hunter2@a?ssl_check_hostname=hunter2",
        "redis://[::1:hunter2@a",
    ],
)
def test_anything_else_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(
        InvalidDocument, match="Redis URL: expected redis://user:password@host:6379/0"
    ) as refused:
        Address.from_url(url)
    assert SECRET not in f"{refused.value} {refused.value.__cause__}"


def test_an_empty_text_is_called_empty() -> None:
    """As that of a variable that was set from .delayq/redis.url before `delayq run` has written it."""
    with pytest.raises(InvalidDocument, match="got an empty text; is the variable or file empty from which"):
        Address.from_url("")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "rediss://:hunter2@a?ssl_ca_cert=hunter2",
            "of rediss://, got ssl_ca_cert; it takes db, password, ssl_",
        ),
        (
            "redis://:hunter2@a?ssl_ca_certs=/ca",
            "of redis://, got ssl_ca_certs; it takes db, password, username",
        ),
        (
            "redis+cluster://a?sentinel_password=hunter2&Db=0&pasword=hunter2",
            "redis+cluster://, got pasword and sentinel_password; it takes db, password, username",
        ),
        ("unix:///run/redis.sock?database=1", "of unix://, got another; it takes db, password, username"),
        # It may be a part of a password.
        ("redis://a?password=x&hunter2=", "got another; it takes db, password, username"),
        ("redis+sentinel://:hunter2@a", "expected the name of the master"),
        ("redis+sentinel://:hunter2@a?db=0", "expected the name of the master"),
    ],
)
def test_what_is_wrong_with_a_url_is_named_and_never_quoted(url: str, said: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        Address.from_url(url)
    assert said in str(refused.value)
    assert SECRET not in f"{refused.value} {refused.value.__cause__}"


def test_an_address_shows_no_password() -> None:
    for url in ("redis://u:hunter2@a", "redis+sentinel://u:hunter2@a/shop?sentinel_password=hunter2"):
        assert SECRET not in repr(Address.from_url(url))


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64, f"a.{'b' * 64}.c"])
def test_a_host_that_no_name_server_could_be_asked_for_is_refused(host: str) -> None:
    with pytest.raises(InvalidDocument):
        Address.from_url(f"redis://{host}:6379")
    assert Address.from_url("redis://a.b.:6379").places == (Place("a.b.", 6379),)
