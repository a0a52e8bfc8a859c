"""What http handlers and checks read from mounted files: secret headers, signing keys and authorities."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import trustme
from aiohttp import web
from delayq.contract.http_service import HttpService
from delayq.contract.references import CaConfigMapRef, HeaderSecretRef
from delayq.errors import Bury, InvalidDocument, Retry
from delayq.handlers.credentials import MOST_BYTES, Credentials, lacking
from delayq.handlers.signature import InvalidSignatureError, verify

from tests.unit.connection.mounted import mount
from tests.unit.handlers.receivers import Receiver, hostile, http_handler
from tests.unit.handlers.support import a_task, document

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from pathlib import Path

TOKEN = {"name": "shop", "key": "token"}
OTHERS = "a line break, or a character that is not printable ASCII"
BEARER = {"Authorization": TOKEN | {"scheme": "Bearer"}}


async def test_headers_are_those_of_the_files_as_they_are_now(tmp_path: Path) -> None:
    """A rotation needs no restart; a file that goes away leaves its last value."""
    mount(tmp_path, "shop", token=b"first\n", key=b" a key\r\n")
    headers = BEARER | {"X-Api-Key": {"name": "shop", "key": "key"}}
    async with (
        Receiver.listening() as receiver,
        http_handler(receiver.url, tmp_path, secretHeaders=headers) as handler,
    ):
        await handler.call(a_task())
        mount(tmp_path, "shop", token=b"second")
        await handler.call(a_task())
        (tmp_path / "shop" / "token").unlink()
        await handler.call(a_task())
    sent = [(each["Authorization"], each["X-Api-Key"].strip()) for each in receiver.headers]
    assert sent == [("Bearer first", "a key"), ("Bearer second", "a key"), ("Bearer second", "a key")]


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"", "an empty file"),
        (b"\n", "an empty file"),
        (b"  \n", "an empty file"),
        (b"s3cret\n\n", OTHERS),
        (b"s3cret\r\nX-Admin: yes", OTHERS),
        (b"s3cret\t", OTHERS),
        (b"s3cret\x00", OTHERS),
        ("s3crét".encode(), OTHERS),
        (b"s" * (MOST_BYTES + 1), "16,385 bytes"),
    ],
)
def test_a_value_that_no_header_can_have_is_refused_and_not_quoted(
    tmp_path: Path, content: bytes, got: str
) -> None:
    mount(tmp_path, "shop", token=content)
    spec = HttpService(url="http://x", secret_headers={"X-Key": HeaderSecretRef(name="shop", key="token")})
    [(file, why)] = Credentials(spec, field="spec.handler.http", secrets_dir=tmp_path).lacks().items()
    assert str(file) == "key token of Secret shop"
    assert why.startswith(
        f'spec.handler.http.secretHeaders["X-Key"]: {tmp_path}/shop/token: expected one line'
    )
    assert why.endswith(f"got {got}")
    assert "s3cr" not in why


async def test_a_401_is_retried_with_the_credential_that_is_mounted_by_then(tmp_path: Path) -> None:
    """The attempt is charged, so that a credential that stays wrong ends in a dead letter."""
    mount(tmp_path, "shop", token=b"old-token")
    refusal = web.Response(status=401, text="unknown: Bearer old-token, or old-token?")
    async with (
        Receiver.listening() as receiver,
        http_handler(receiver.url, tmp_path, secretHeaders=BEARER) as handler,
    ):
        receiver.answers = [refusal, web.Response(status=403)]
        with pytest.raises(Retry) as retry:
            await handler.call(a_task())
        mount(tmp_path, "shop", token=b"new-token")
        with pytest.raises(Bury, match="403 Forbidden"):
            await handler.call(a_task())
        await handler.call(a_task())
    assert (str(retry.value), retry.value.charge) == (
        "HTTPStatusError: 401 Unauthorized\nunknown: [redacted], or [redacted]?",
        True,
    )
    assert receiver.headers[2]["Authorization"] == "Bearer new-token"


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        ({"signingSecretRef": {"name": "shop"}}, Retry),
        ({"headers": {"Authorization": "Bearer x"}}, Bury),
        ({}, Bury),
    ],
)
async def test_without_a_mounted_credential_a_401_is_final(
    tmp_path: Path, spec: dict[str, Any], outcome: type[Exception]
) -> None:
    """A signing key is such a credential; a header of the document is not."""
    mount(tmp_path, "shop", key=b"k")
    async with Receiver.listening() as receiver, http_handler(receiver.url, tmp_path, **spec) as handler:
        receiver.answers = [web.Response(status=401)]
        with pytest.raises(outcome, match="401 Unauthorized"):
            await handler.call(a_task())


async def test_a_signature_follows_its_secret(tmp_path: Path) -> None:
    """Each call is signed with the secret as it is now."""
    mount(tmp_path, "shop", key=b"old\n")
    reference = {"name": "shop", "key": "key"}
    async with (
        Receiver.listening() as receiver,
        http_handler(receiver.url, tmp_path, signingSecretRef=reference) as handler,
    ):
        await handler.call(a_task(task_id="é"))
        mount(tmp_path, "shop", key=b"new\n")
        await handler.call(a_task())
    verify(receiver.headers[0], receiver.bodies[0], secrets=[b"old"], target="/cancel")
    verify(receiver.headers[1], receiver.bodies[1], secrets=[b"new"], target="/cancel")
    with pytest.raises(InvalidSignatureError):
        verify(receiver.headers[1], receiver.bodies[1], secrets=[b"old"], target="/cancel")


def test_spaces_at_the_ends_of_a_value_are_not_sent(tmp_path: Path) -> None:
    """Receivers strip them, and an answer that repeats the value has none."""
    mount(tmp_path, "shop", token=b" s3cret key \n")
    spec = HttpService(
        url="http://x", secret_headers={"X-Key": HeaderSecretRef(name="shop", key="token", scheme="Key")}
    )
    assert Credentials(spec, field="x", secrets_dir=tmp_path).headers() == {"X-Key": "Key s3cret key"}


async def test_an_answer_that_repeats_a_credential_escaped_is_redacted(tmp_path: Path) -> None:
    """In its body, as JSON, and in the Location of a redirect."""
    mount(tmp_path, "shop", token=b'a/b"c\\d+e=')
    quoted = quote('a/b"c\\d+e=', safe="")
    async with (
        Receiver.listening() as receiver,
        http_handler(receiver.url, tmp_path, secretHeaders=BEARER) as handler,
    ):
        receiver.answers = [
            web.json_response({"sent": 'Bearer a/b"c\\d+e=', "n": 1}, status=500),
            web.Response(status=307, headers={"Location": f"/login?token={quoted}&n=1"}),
        ]
        with pytest.raises(Retry) as retry:
            await handler.call(a_task())
        with pytest.raises(Bury) as bury:
            await handler.call(a_task())
    assert str(retry.value).endswith('\n{"sent": "[redacted]", "n": 1}')
    assert str(bury.value).endswith("\nLocation: /login?token=[redacted]&n=1")


async def test_an_error_that_quotes_a_malformed_response_is_redacted(tmp_path: Path) -> None:
    """A service that is no HTTP service, and sends back what it got."""
    mount(tmp_path, "shop", token=b"s3cret-token")

    async def repeat(_reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"Authorization: Bearer s3cret-token\r\n\r\n")

    async with hostile(repeat) as url, http_handler(url, tmp_path, secretHeaders=BEARER) as handler:
        with pytest.raises(Retry, match=r"Authorization: \[redacted\]") as retry:
            await handler.call(a_task())
    assert "s3cret" not in str(retry.value)


def served_by(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


async def test_the_authority_of_a_file_is_trusted_instead_of_the_systems(tmp_path: Path) -> None:
    """And after its rotation the new one, at the next call."""
    old, new = trustme.CA(), trustme.CA()
    maps = tmp_path / "_configmaps"
    maps.mkdir()
    mount(maps, "trust", ca_crt=b"# comment\xc3\xa9\n" + old.cert_pem.bytes())
    ca: dict[str, Any] = {"caConfigMapRef": {"name": "trust"}}
    async with Receiver.listening(served_by(old)) as first, Receiver.listening(served_by(new)) as second:
        async with http_handler(first.url, tmp_path, **ca) as handler:
            await handler.call(a_task())
            await handler.call(a_task())
            assert first.connections == 1, "a context that has not changed keeps its connections"
            mount(maps, "trust", ca_crt=new.cert_pem.bytes())
            with pytest.raises(Retry, match="CERTIFICATE_VERIFY_FAILED"):
                await handler.call(a_task())
        async with http_handler(second.url, tmp_path, **ca) as handler:
            await handler.call(a_task())
        async with http_handler(second.url, tmp_path) as handler:
            with pytest.raises(Retry, match="CERTIFICATE_VERIFY_FAILED"):
                await handler.call(a_task())
    assert (len(first.bodies), len(second.bodies)) == (2, 1)


@pytest.mark.parametrize("content", [b"", b" \n", b"# to be filled\n", "é".encode()])
def test_a_file_without_a_certificate_is_refused(tmp_path: Path, content: bytes) -> None:
    """The system's authorities are not trusted in its place; after a rotation the last valid file is."""
    maps = tmp_path / "_configmaps"
    maps.mkdir()
    mount(maps, "trust", ca_crt=content)
    spec = HttpService(url="https://x", ca_config_map_ref=CaConfigMapRef(name="trust"))
    credentials = Credentials(spec, field="spec.handler.http", secrets_dir=tmp_path)
    [(file, why)] = credentials.lacks().items()
    assert str(file) == "key ca.crt of ConfigMap trust"
    assert why.startswith(
        f"spec.handler.http.caConfigMapRef: {maps}/trust/ca.crt: expected certificates of auth"
    )
    mount(maps, "trust", ca_crt=trustme.CA().cert_pem.bytes())
    trusted = credentials.trust()
    assert isinstance(trusted, ssl.SSLContext)
    assert (trusted.check_hostname, trusted.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert trusted.cert_store_stats() == {"x509": 1, "x509_ca": 1, "crl": 0}
    mount(maps, "trust", ca_crt=content)
    assert credentials.trust() is trusted


def test_every_missing_or_invalid_file_is_named_with_field_path_and_key(tmp_path: Path) -> None:
    """Of the handler, of kinds and of the check; one that is there is not named."""
    mount(tmp_path, "shop", ca_crt=b"no certificate", key=b"\n", token=b"fine")
    refs = {"caSecretRef": {"name": "shop"}, "signingSecretRef": {"name": "shop"}, "secretHeaders": BEARER}
    handler = {
        "http": {"url": "https://x", **refs},
        "kinds": {"push": {"http": {"url": "https://x", "caConfigMapRef": {"name": "trust"}}}},
    }
    check = {"http": {"url": "https://x", "secretHeaders": {"X-Key": TOKEN | {"key": "absent"}}}}
    queue = document(handler, recovery={"check": check})
    found = lacking(queue.spec.http_services, tmp_path)
    handler_field, kind_field = "spec.handler.http", 'spec.handler.kinds["push"].http'
    expected = [
        f"{handler_field}.signingSecretRef: {tmp_path}/shop/key: expected a key to sign with, got an empty file",
        f"{handler_field}.caSecretRef: {tmp_path}/shop/ca.crt: expected certificates of authorities, PEM; got ",
        f'spec.recovery.check.http.secretHeaders["X-Key"]: cannot read {tmp_path}/shop/absent: No such file or ',
        f"{kind_field}.caConfigMapRef: cannot read {tmp_path}/_configmaps/trust/ca.crt: No such file or directory ",
    ]
    assert [why[: len(start)] for why, start in zip(found, expected, strict=True)] == expected
    assert "(mount key absent of Secret shop there, or set $DELAYQ_SECRETS_DIR" in found[2]
    assert "(mount key ca.crt of ConfigMap trust there" in found[3]


async def test_nothing_is_sent_while_a_file_is_missing(tmp_path: Path) -> None:
    """An unsigned call is never sent in place of a signed one, nor one without its header."""
    async with (
        Receiver.listening() as receiver,
        http_handler(receiver.url, tmp_path, secretHeaders=BEARER) as handler,
    ):
        with pytest.raises(InvalidDocument, match=r"secretHeaders.*cannot read .*shop/token"):
            await handler.call(a_task())
        assert receiver.bodies == []
        mount(tmp_path, "shop", token=b"x")
        assert handler.lacks() == {}
        await handler.call(a_task())
    assert receiver.headers[0]["Authorization"] == "Bearer x"
