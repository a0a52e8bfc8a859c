"""spec.api as its author writes it, and the access that follows from it."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from delayq.api.access import VERBS, Denied, access_of
from delayq.api.access.named_tokens import hash_of, new_token
from delayq.api.access.service_accounts import ServiceAccounts
from delayq.contract import SpecError, parse
from delayq.contract.references import references

from tests.unit.api.issuer import NOW, Volume, claims, key_set, sign
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract.api import Api

WEB: dict[str, Any] = {"namespace": "shop", "name": "web"}
API: dict[str, Any] = {
    "allowPlainHttp": True,
    "tokensSecretRef": {"name": "shop-tokens"},
    "access": [
        {"serviceAccount": WEB, "verbs": ["schedule", "cancel"], "kinds": ["email", "report"]},
        {"serviceAccount": WEB, "verbs": ["read"]},
        {"token": "php", "verbs": ["schedule"], "kinds": ["email"]},
        {"token": "php", "verbs": ["schedule"], "kinds": ["invoice"]},
    ],
}


def api_of(**changes: object) -> Api:
    found = parse(document(api={**API, **changes})).spec.api
    assert found is not None
    return found


def test_callers_have_the_rights_of_their_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume, token = Volume(tmp_path / "issuer"), new_token()
    volume.write(key_set(("RS256", "one")))
    secret = tmp_path / "secrets" / "shop-tokens"
    secret.mkdir(parents=True)
    (secret / "php").write_text(hash_of(token))
    access = access_of(api_of(), tmp_path / "secrets")
    monkeypatch.setattr(access._accounts, "_now", lambda: NOW + 60.0)
    web, php = access.caller(f"Bearer {sign(claims())}"), access.caller(f"Bearer {token}")
    kinds = (None, "email", "report", "invoice")
    allowed = {
        each.name: {(verb, kind) for verb, kind in product(VERBS, kinds) if each.may(verb, kind)}
        for each in (web, php)
    }
    assert allowed == {
        "system:serviceaccount:shop:web": {
            *product(("schedule", "cancel"), ("email", "report")),
            *product(("read",), kinds),
        },
        "token:php": {("schedule", "email"), ("schedule", "invoice")},
    }
    assert (access.missing, access.lack) == ([], "")


def test_an_account_without_an_entry_is_known_and_may_nothing(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "issuer")
    volume.write(key_set(("RS256", "one")))
    access = access_of(api_of(), tmp_path / "secrets")
    access._accounts = ServiceAccounts(volume.path, now=lambda: NOW + 60.0)
    name = "system:serviceaccount:shop:other"
    about = {"namespace": "shop", "serviceaccount": {"name": "other"}}
    caller = access.caller(f"Bearer {sign(claims(sub=name, **{'kubernetes.io': about}))}")
    assert caller.name == name
    assert not any(caller.may(verb, kind) for verb, kind in product(VERBS, (None, "email")))


def test_tokens_that_no_entry_names_are_not_taken(tmp_path: Path) -> None:
    """Another key of the Secret gives no access."""
    secret, token = tmp_path / "shop-tokens", new_token()
    secret.mkdir()
    (secret / "other").write_text(hash_of(token))
    access = access_of(api_of(), tmp_path)
    with pytest.raises(Denied):
        access.caller(f"Bearer {token}")
    assert [str(each) for each in access.missing] == ["key php of Secret shop-tokens"]
    assert "cannot read" in access.lack


def test_the_document_refers_to_the_tokens_and_the_certificate() -> None:
    tls = {"certSecretRef": {"name": "api-tls"}, "keySecretRef": {"name": "api-tls"}}
    found = references(api_of(tls=tls, allowPlainHttp=False), "spec.api")
    assert [(path, str(reference)) for path, reference in found] == [
        ("spec.api.access[2].token", "key php of Secret shop-tokens"),
        ("spec.api.access[3].token", "key php of Secret shop-tokens"),
        ("spec.api.tls.certSecretRef", "key tls.crt of Secret api-tls"),
        ("spec.api.tls.keySecretRef", "key tls.key of Secret api-tls"),
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"access": None}, "spec.api.access: required, but missing"),
        ({"access": []}, "spec.api.access: expected a list of 1 to 64 items, got 0"),
        (
            {"access": [{"verbs": ["read"]}]},
            "spec.api.access[0]: expected exactly one of serviceAccount, token, got nothing",
        ),
        (
            {"access": [{"token": "php", "verbs": ["redrive"]}]},
            f'spec.api.access[0].verbs[0]: expected one of {", ".join(VERBS)}, got "redrive"',
        ),
        ({"tokensSecretRef": None}, "spec.api: access with a token needs tokensSecretRef"),
        ({"allowPlainHttp": False}, "spec.api: write either tls, or allowPlainHttp: true, with which"),
        (
            {"tls": {"certSecretRef": {"name": "a"}, "keySecretRef": {"name": "a"}}},
            "spec.api: write either tls, or allowPlainHttp: true, with which",
        ),
        (
            {"access": [{"serviceAccount": {"namespace": "a:b", "name": "c"}, "verbs": ["read"]}]},
            'spec.api.access[0].serviceAccount.namespace: expected the name of a namespace, got "a:b"',
        ),
    ],
)
def test_a_wrong_document_is_refused_with_the_path(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as refused:
        api_of(**changes)
    assert str(refused.value).startswith(problem)


def test_without_rights_of_accounts_cryptography_is_not_imported() -> None:
    """9 MB that a process does not pay for without need."""
    code = """
import json, sys
from pathlib import Path
from delayq.api.access import access_of
from delayq.contract import parse
access_of(parse(json.load(sys.stdin)).spec.api, Path("secrets"))
print(sorted({"jwt", "cryptography"} & set(sys.modules)))
"""
    for rules, imported in ((API["access"][2:], "[]\n"), (API["access"], "['cryptography', 'jwt']\n")):
        given = json.dumps(document(api={**API, "access": rules}))
        done = subprocess.run(
            [sys.executable, "-c", code], input=given, capture_output=True, text=True, check=True
        )
        assert done.stdout == imported
