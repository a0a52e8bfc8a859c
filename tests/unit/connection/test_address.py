"""A document's spec.redis: where that is, and secrets that are mounted, change, and are missing."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from delayq.connection import Address, AsyncConnection, SyncConnection
from delayq.connection.place import Place
from delayq.errors import InvalidDocument, Unavailable

from tests.unit.connection.mounted import mount, spec

if TYPE_CHECKING:
    from pathlib import Path

STANDALONE = {"standalone": {"host": "a"}}
LOGIN = {
    "auth": {
        "usernameSecretRef": {"name": "shop-redis", "key": "user"},
        "passwordSecretRef": {"name": "shop-redis"},
    }
}
SHOWN = {"certSecretRef": {"name": "cert"}, "keySecretRef": {"name": "cert"}}


def test_each_topology_has_its_place(tmp_path: Path) -> None:
    nodes = [{"host": "a"}, {"host": "b", "port": 7}]
    found = [
        Address.from_spec(spec(**redis, **rest), tmp_path)
        for redis, rest in (
            ({"standalone": {"host": "a", "port": 7}}, {"database": 3}),
            ({"sentinel": {"masterName": "shop", "nodes": nodes}}, {"database": 3}),
            ({"cluster": {"nodes": nodes}}, {}),
        )
    ]
    assert [(each.kind, each.where, each.database, each.is_cluster) for each in found] == [
        ("standalone", "a:7", 3, False),
        ("sentinel", "sentinel shop at a:26379, b:7", 3, False),
        ("cluster", "cluster at a:6379, b:7", 0, True),
    ]
    assert found[1].at(Place("c", 1)).database == 3


def test_the_timeout_is_that_of_the_document_wherever_it_goes(tmp_path: Path) -> None:
    redis = spec(**STANDALONE, timeoutSeconds=7)
    for url in (None, "redis://b"):
        assert Address.of(redis, tmp_path, url=url).timeout_seconds == 7


def test_a_url_stands_for_all_that_says_where_and_who(tmp_path: Path) -> None:
    redis = spec(**STANDALONE, **LOGIN, tls={}, database=3)
    address = Address.of(redis, tmp_path, url="redis://b")
    assert (address.where, address.tls, bool(address.login), address.database) == ("b:6379", None, False, 0)


def test_a_password_is_as_the_file_is_now(tmp_path: Path) -> None:
    mount(tmp_path, "shop-redis", user=b"shop\n", password=b"one\n")
    address = Address.from_spec(spec(**STANDALONE, **LOGIN), tmp_path)
    assert address.login.get_credentials() == ("shop", "one")
    mount(tmp_path, "shop-redis", password=b"two")
    assert address.login.get_credentials() == ("shop", "two")
    assert address.login.name() == "shop"


def test_sentinels_have_a_login_of_their_own(tmp_path: Path) -> None:
    mount(tmp_path, "shop-redis", user=b"shop", password=b"one")
    mount(tmp_path, "watch", password=b"two")
    sentinel = {"masterName": "m", "nodes": [{"host": "a"}], "auth": {"passwordSecretRef": {"name": "watch"}}}
    address = Address.from_spec(spec(sentinel=sentinel, **LOGIN), tmp_path)
    assert address.sentinels[0].login.get_credentials() == ("two",)
    assert address.at(Place("b")).login.get_credentials() == ("shop", "one")


@pytest.mark.parametrize(
    ("redis", "message"),
    [
        (
            LOGIN,
            "Secret shop-redis: expected its key password as the file .*/shop-redis/password, found none",
        ),
        (
            {"tls": {"caSecretRef": {"name": "ca"}}},
            "Secret ca: expected its key ca.crt as the file .*, found none",
        ),
        (
            {"tls": SHOWN},
            "Secret cert: expected its key tls.crt as the file .*, found none",
        ),
    ],
)
def test_what_is_not_mounted_at_the_start_is_named(
    tmp_path: Path, redis: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidDocument, match=message):
        Address.from_spec(spec(**STANDALONE, **redis), tmp_path)


def test_what_is_no_certificate_or_has_another_key_is_named_and_not_quoted(tmp_path: Path) -> None:
    one, other = (trustme.CA().issue_cert("a") for _ in range(2))
    swapped = {"tls_crt": one.cert_chain_pems[0].bytes(), "tls_key": other.private_key_pem.bytes()}
    mount(tmp_path, "ca", ca_crt=b"hunter2")
    pair = r"key tls\.crt .* a certificate that its key belongs to, PEM; got"
    wrong: list[tuple[dict[str, bytes], dict[str, Any], str]] = [
        ({}, {"caSecretRef": {"name": "ca"}}, r"key ca\.crt as the file .*, with certificates, PEM; got"),
        ({"tls_crt": b"hunter2", "tls_key": b"hunter2"}, SHOWN, pair),
        (swapped, SHOWN, f"{pair} KEY_VALUES_MISMATCH"),
    ]
    for files, tls, message in wrong:
        mount(tmp_path, "cert", **files)
        with pytest.raises(InvalidDocument, match=message) as refused:
            Address.from_spec(spec(**STANDALONE, tls=tls), tmp_path)
        assert "hunter2" not in str(refused.value)


def test_the_authority_may_be_in_a_config_map_beside_a_secret_of_the_same_name(tmp_path: Path) -> None:
    of_secret, of_map = (trustme.CA().cert_pem.bytes() for _ in range(2))
    (tmp_path / "_configmaps").mkdir()
    mount(tmp_path, "ca", ca_crt=of_secret)
    mount(tmp_path / "_configmaps", "ca", ca_crt=of_map)
    for field, expected in (("caSecretRef", of_secret), ("caConfigMapRef", of_map)):
        tls = Address.from_spec(spec(**STANDALONE, tls={field: {"name": "ca"}}), tmp_path).tls
        assert tls is not None
        assert tls.context().get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(expected.decode())]
    with pytest.raises(
        InvalidDocument, match=r"^ConfigMap gone: expected its key x as the file .* found none"
    ):
        Address.from_spec(spec(**STANDALONE, tls={"caConfigMapRef": {"name": "gone", "key": "x"}}), tmp_path)


@pytest.mark.parametrize("gone", ["password", "user", "ca.crt"])
def test_a_file_that_disappears_is_reported_by_each_connect(tmp_path: Path, gone: str) -> None:
    mount(tmp_path, "shop-redis", user=b"shop", password=b"one", ca_crt=trustme.CA().cert_pem.bytes())
    tls = {} if gone != "ca.crt" else {"tls": {"caSecretRef": {"name": "shop-redis"}}}
    listening = {"standalone": {"host": "127.0.0.1"}}

    async def serve() -> list[str]:
        listening["standalone"]["port"] = server.getsockname()[1]
        address = Address.from_spec(spec(**listening, **LOGIN, **tls), tmp_path)
        (tmp_path / "shop-redis" / gone).unlink()
        waiting, blocking = AsyncConnection(address), SyncConnection(address)
        with pytest.raises(Unavailable) as one:
            await waiting.send([("PING",)])
        with pytest.raises(Unavailable) as other:
            await asyncio.to_thread(blocking.send, [("PING",)])
        await waiting.close()
        blocking.close()
        outages = {one.value.outage, other.value.outage}
        assert outages == {"tls" if tls else "auth"}
        return [str(one.value), str(other.value)]

    with socket.create_server(("127.0.0.1", 0)) as server:
        messages = asyncio.run(serve())
    for said in messages:
        assert f"ecret shop-redis: expected its key {gone} as the file" in said
