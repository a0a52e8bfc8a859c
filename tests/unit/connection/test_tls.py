"""What a handshake is made of: made anew when a file says something else, and never weaker than TLS 1.2."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from delayq.connection.login import Mounted
from delayq.connection.tls import Tls
from delayq.contract.references import CaSecretRef, CertSecretRef, KeySecretRef

from tests.unit.connection.mounted import mount

if TYPE_CHECKING:
    from pathlib import Path


def test_everything_is_verified_by_default_and_nothing_older_than_tls_1_2_is_spoken() -> None:
    for tls, verified, named in (
        (Tls(), ssl.CERT_REQUIRED, True),
        (Tls(named=False), ssl.CERT_REQUIRED, False),
        (Tls(verified=False), ssl.CERT_NONE, False),
    ):
        context = tls.context()
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert (context.verify_mode, context.check_hostname) == (verified, named)


def test_a_context_is_made_anew_only_when_a_file_says_something_else(tmp_path: Path) -> None:
    mount(tmp_path, "ca", ca_crt=trustme.CA().cert_pem.bytes())
    tls = Tls(Mounted.of(tmp_path, CaSecretRef(name="ca")))
    first = tls.context()
    assert tls.context() is first
    mount(tmp_path, "ca", ca_crt=trustme.CA().cert_pem.bytes())
    assert tls.context() is not first


def test_a_key_with_a_password_is_refused_without_a_prompt_at_the_terminal(tmp_path: Path) -> None:
    pair = trustme.CA().issue_cert("a")
    key = serialization.load_pem_private_key(pair.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )
    mount(tmp_path, "pair", tls_crt=pair.cert_chain_pems[0].bytes(), tls_key=locked)
    tls = Tls(
        certificate=Mounted.of(tmp_path, CertSecretRef(name="pair")),
        key=Mounted.of(tmp_path, KeySecretRef(name="pair")),
    )
    with pytest.raises(ssl.SSLError, match=r"Secret pair: expected its key tls\.crt"):
        tls.context()
