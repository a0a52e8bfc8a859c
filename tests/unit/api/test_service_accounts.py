"""Tokens of ServiceAccounts: which are accepted, for how long, and by which keys. Every key is real."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from delayq.api.access import service_accounts
from delayq.api.access.bearer import Denied
from delayq.api.access.issuer_keys import ALGORITHMS, parse
from delayq.api.access.service_accounts import LEEWAY_SECONDS, ServiceAccounts
from delayq.errors import InvalidDocument
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.api.issuer import NOW, Volume, claims, key_set, private_key, public_jwk, sign

if TYPE_CHECKING:
    from pathlib import Path

WEB = "system:serviceaccount:shop:web"


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = float(NOW + 60)

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def made_clock() -> Clock:
    return Clock()


@pytest.fixture(name="volume")
def mounted_volume(tmp_path: Path) -> Volume:
    volume = Volume(tmp_path / "issuer")
    volume.write(key_set(("RS256", "one")))
    return volume


@pytest.fixture(name="accounts")
def known_accounts(volume: Volume, clock: Clock) -> ServiceAccounts:
    return ServiceAccounts(volume.path, now=clock)


@pytest.fixture(scope="module", name="shared")
def shared_accounts(tmp_path_factory: pytest.TempPathFactory) -> ServiceAccounts:
    """For the examples of Hypothesis, which change nothing."""
    volume = Volume(tmp_path_factory.mktemp("issuer"))
    volume.write(key_set(("RS256", "one")))
    return ServiceAccounts(volume.path, now=Clock())


def why(accounts: ServiceAccounts, token: str, status: int = 401) -> str:
    """Why a token is denied."""
    with pytest.raises(Denied) as denied:
        accounts.name(token)
    assert denied.value.status == status
    assert token not in denied.value.why
    return denied.value.why


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS.values()))
def test_a_token_names_its_account_whatever_kind_of_key_the_cluster_has(
    volume: Volume, clock: Clock, algorithm: str
) -> None:
    volume.write(key_set((algorithm, "of-it")))
    assert ServiceAccounts(volume.path, now=clock).name(sign(claims(), algorithm, "of-it")) == WEB


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": ["https://kubernetes.default.svc"]}, "audience delayq"),
        ({"aud": "other"}, "audience delayq"),
        ({"aud": {"delayq": True}}, "audience delayq"),
        ({"aud": None}, "lacks the claim aud"),
        ({"aud": []}, "lacks the claim aud"),
        ({"iss": "https://kubernetes.default"}, "another issuer"),
        ({"iss": None}, "lacks the claim iss"),
        ({"exp": None}, "lacks the claim exp"),
        ({"nbf": None}, "lacks the claim nbf"),
        ({"iat": None}, "lacks the claim iat"),
        ({"sub": None}, "lacks the claim sub"),
        ({"exp": str(NOW + 3600)}, "not whole numbers"),
        ({"exp": float("inf")}, "not whole numbers"),
        ({"iat": True}, "not whole numbers"),
        ({"exp": NOW + 60}, "expired"),
        ({"exp": NOW + 70 * 60 + 1}, "at most 70 minutes, got one of 71"),
        ({"iat": NOW - 3600}, "at most 70 minutes, got one of 120: set expirationSeconds: 3600"),
        ({"nbf": NOW + 60 + LEEWAY_SECONDS + 1}, "not valid yet"),
        ({"iat": NOW + 60 + LEEWAY_SECONDS + 1}, "not valid yet"),
        ({"sub": "system:serviceaccount:shop:admin"}, "not one of a ServiceAccount"),
        ({"sub": "system:node:node-1"}, "not one of a ServiceAccount"),
        ({"kubernetes.io": None}, "not one of a ServiceAccount"),
        ({"kubernetes.io": {"namespace": "shop"}}, "not one of a ServiceAccount"),
        ({"kubernetes.io": ["shop", "web"]}, "not one of a ServiceAccount"),
        (
            {
                "sub": "system:serviceaccount:a:b:c",
                "kubernetes.io": {"namespace": "a:b", "serviceaccount": {"name": "c"}},
            },
            "not one of a ServiceAccount",
        ),
    ],
)
def test_a_signed_token_is_denied_if_a_claim_is_wrong(
    accounts: ServiceAccounts, changes: dict[str, Any], reason: str
) -> None:
    assert reason in why(accounts, sign(claims(**changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["other", "delayq"]},
        {"aud": "delayq"},
        {"exp": NOW + 70 * 60},
        {"nbf": NOW + 60 + LEEWAY_SECONDS, "iat": NOW + 60 + LEEWAY_SECONDS},
    ],
)
def test_a_token_at_the_edge_is_accepted(accounts: ServiceAccounts, changes: dict[str, Any]) -> None:
    assert accounts.name(sign(claims(**changes))) == WEB


def unsigned(payload: dict[str, Any], header: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(payload).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def by_public_key_as_secret() -> str:
    """The confusion of algorithms: HS256 with the public key, which everybody may know, as its secret."""
    pem = (
        private_key("RS256", "one")
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    message = unsigned(claims(), {"alg": "HS256", "kid": "one"}).rpartition(".")[0]
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = base64.urlsafe_b64encode(algorithm.sign(message.encode(), pem)).decode().rstrip("=")
    return f"{message}.{signature}"


def by_other_key() -> str:
    own = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return jwt.encode(claims(), own, algorithm="RS256", headers={"kid": "one"})


def with_own_key_in_header() -> str:
    own = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    headers = {"kid": "one", "jwk": public_jwk(own, "one")}
    return jwt.encode(claims(), own, algorithm="RS256", headers=headers)


def with_payload_of_another() -> str:
    head, _, signature = sign(claims()).split(".")
    return f"{head}.{sign(claims(sub='system:serviceaccount:shop:admin')).split('.')[1]}.{signature}"


FORGED = {
    "none": unsigned(claims(), {"alg": "none", "kid": "one"}),
    "None": unsigned(claims(), {"alg": "None", "kid": "one"}),
    "no alg": unsigned(claims(), {"kid": "one"}),
    "no signature": unsigned(claims(), {"alg": "RS256", "kid": "one"}),
    "public key as secret": by_public_key_as_secret(),
    "other key": by_other_key(),
    "own key in header": with_own_key_in_header(),
    "payload of another": with_payload_of_another(),
    "PS256": jwt.encode(claims(), private_key("RS256", "one"), algorithm="PS256", headers={"kid": "one"}),
    "RS512": jwt.encode(claims(), private_key("RS256", "one"), algorithm="RS512", headers={"kid": "one"}),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_token_is_denied(accounts: ServiceAccounts, forged: str) -> None:
    assert why(accounts, forged) == "the signature of the token is not valid"


@pytest.mark.parametrize("kid", ["two", "", "../one", 1, None, ["one"]])
def test_a_token_without_a_known_key_is_denied(accounts: ServiceAccounts, kid: object) -> None:
    denied = why(accounts, unsigned(claims(), {"alg": "RS256", "kid": kid}, b"x"))
    assert "not one of this cluster" in denied or "not a JSON Web Token" in denied


def test_critical_extensions_are_refused(accounts: ServiceAccounts) -> None:
    denied = why(accounts, sign(claims(), crit=["exp"]))
    assert "critical extensions" in denied or "not a JSON Web Token" in denied


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300) | st.lists(st.binary(max_size=60), max_size=5).map(str))
def test_no_text_makes_the_verification_fail_otherwise(shared: ServiceAccounts, text: str) -> None:
    why(shared, text + ".")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_token_with_any_character_changed_is_denied(shared: ServiceAccounts, data: st.DataObject) -> None:
    """But the last one of a part: base64 has bits there that mean nothing."""
    token = sign(claims())
    inner = [at for at in range(len(token) - 1) if token[at + 1] != "."]
    at = data.draw(st.sampled_from(inner))
    other = data.draw(st.sampled_from("AQgw_-.09").filter(lambda other: other != token[at]))
    why(shared, token[:at] + other + token[at + 1 :])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["aud", "iss", "exp", "nbf", "iat", "sub", "kubernetes.io", "jti"]),
    json_values,
)
def test_a_claim_of_any_shape_is_denied_or_harmless(
    shared: ServiceAccounts, name: str, value: object
) -> None:
    """Only a signer of the cluster can make such a token; even then nothing but Denied comes out."""
    with suppress(Denied):
        assert shared.name(sign({**claims(), name: value})) == WEB


def test_a_token_that_was_accepted_is_denied_from_the_second_that_it_expires(
    accounts: ServiceAccounts, clock: Clock
) -> None:
    """Though it was verified before, and without leeway."""
    token = sign(claims())
    clock.now = NOW + 3599.9
    assert accounts.name(token) == WEB
    clock.now = NOW + 3600.0
    assert why(accounts, token) == "the token has expired"


def test_a_rotated_key_is_found_without_a_restart_and_the_former_one_ends(
    accounts: ServiceAccounts, volume: Volume
) -> None:
    old, new = sign(claims()), sign(claims(), "ES256", "two")
    assert accounts.name(old) == WEB
    why(accounts, new)
    volume.write(key_set(("RS256", "one"), ("ES256", "two")))
    assert (accounts.name(old), accounts.name(new)) == (WEB, WEB)
    volume.write(key_set(("ES256", "two")))
    assert accounts.name(new) == WEB
    assert "not one of this cluster" in why(accounts, old)


def test_unknown_keys_have_the_file_read_only_when_it_has_changed(
    volume: Volume, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, unknown = Mock(wraps=parse), sign(claims(), "ES256", "two")
    monkeypatch.setattr(service_accounts, "parse", reads)
    accounts = ServiceAccounts(volume.path, now=clock)
    for _ in range(50):
        why(accounts, unknown)
    volume.write(key_set(("RS256", "one"), ("ES256", "three")))
    for _ in range(50):
        why(accounts, unknown)
    assert reads.call_count == 2


def test_keys_stay_when_the_new_file_is_not_valid(
    accounts: ServiceAccounts, volume: Volume, caplog: pytest.LogCaptureFixture
) -> None:
    token = sign(claims())
    assert accounts.name(token) == WEB
    volume.write('{"issuer"')
    assert accounts.name(token) == WEB
    assert [record.getMessage() for record in caplog.records] == ["secret_unreadable"]


def test_while_the_keys_are_not_there_the_answer_is_503(tmp_path: Path, clock: Clock) -> None:
    volume = Volume(tmp_path)
    accounts = ServiceAccounts(volume.path, now=clock)
    assert "cannot be read yet" in why(accounts, sign(claims()), status=503)
    assert "jwks.json" in accounts.lack
    volume.write(key_set(("RS256", "one")))
    assert accounts.name(sign(claims())) == WEB
    assert accounts.lack == ""


def test_a_token_is_verified_once(accounts: ServiceAccounts, monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 requests a second of one producer cost one verification an hour."""
    verified = Mock(wraps=jwt.decode)
    monkeypatch.setattr(jwt, "decode", verified)
    token = sign(claims())
    assert {accounts.name(token) for _ in range(100)} == {WEB}
    assert verified.call_count == 1


def test_the_verified_tokens_that_are_remembered_are_bounded(
    accounts: ServiceAccounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none of them is in memory: a dump of it has no credentials."""
    monkeypatch.setattr(service_accounts, "MOST_REMEMBERED", 2)
    tokens = [sign(claims(jti=str(number))) for number in range(4)]
    for token in tokens:
        assert accounts.name(token) == WEB
        assert token not in repr(vars(accounts))
    assert len(accounts._verified) == 2
    assert [accounts.name(token) for token in tokens] == [WEB] * 4


KEYS = {
    "text": "[",
    "a list": [],
    "no issuer": {"keys": []},
    "no keys": {"issuer": "x"},
    "none of a known type": {
        "issuer": "x",
        "keys": [
            {"kid": "a", "kty": "oct", "k": "c2VjcmV0"},
            {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
            {"kid": "b", "kty": "RSA", "n": "AQAB", "e": "AQAB"},
            {"kid": "c", "kty": "RSA", "n": 1, "e": None},
            {"kid": "d", "kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"},
            {"kid": "e", "kty": "EC", "crv": "secp256k1", "x": "AQAB", "y": "AQAB"},
            {"kid": "f", "kty": ["RSA"], "crv": {}},
            {"kid": ["g"], "kty": "RSA"},
            "h",
            None,
        ],
    },
}


@pytest.mark.parametrize("content", KEYS.values(), ids=KEYS)
def test_a_file_without_an_issuer_and_a_usable_key_is_refused(content: object) -> None:
    with pytest.raises(InvalidDocument, match=r"^expected a (JSON Web Key Set|key)"):
        parse((content if isinstance(content, str) else json.dumps(content)).encode())


def test_keys_that_sign_nothing_here_are_left_out() -> None:
    """A weak key, one for another use, one that says another algorithm, and one that is private."""
    good = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 -- refused
    private = jwt.algorithms.RSAAlgorithm.to_jwk(good, as_dict=True)
    keys = [
        public_jwk(good, "good"),
        public_jwk(weak, "weak"),
        {**public_jwk(good, "encrypts"), "use": "enc"},
        public_jwk(good, "other", alg="RS512"),
        {**private, "kid": "private"},
    ]
    assert list(parse(json.dumps({"issuer": "x", "keys": keys}).encode()).keys) == ["good"]
