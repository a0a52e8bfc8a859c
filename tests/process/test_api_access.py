"""Who may call the HTTP API of a queue with spec.api: tokens and rights against a running process."""

from __future__ import annotations

import json
import re
import resource
import ssl
import time
from contextlib import ExitStack, closing
from copy import copy
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import yaml
from delayq.api.access import VERBS
from delayq.api.access.named_tokens import hash_of, new_token
from delayq.errors import InvalidDocument
from delayq.processes.api import Listen, _sockets

from tests.process.http_api import resident_mb, serving
from tests.processes import DELAYQ, Process, delayq
from tests.unit.api.issuer import Volume, claims, key_set, sign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.http_api import Reply, Served

MAILER, READER, BOSS = new_token(), new_token(), new_token()
API: dict[str, Any] = {
    "allowPlainHttp": True,
    "tokensSecretRef": {"name": "tokens"},
    "access": [
        {
            "serviceAccount": {"namespace": "shop", "name": "web"},
            "verbs": ["schedule", "read", "read-payloads"],
        },
        {
            "token": "mailer",
            "verbs": ["schedule", "cancel", "reschedule", "read", "read-payloads"],
            "kinds": ["email"],
        },
        {"token": "reader", "verbs": ["read"]},
        {"token": "boss", "verbs": [*VERBS]},
    ],
}
LATER = {"delay": "1h", "payload": {"secret": "of-a-customer"}}


def account_token(**changes: Any) -> str:  # noqa: ANN401 -- claims
    now = int(time.time())
    return sign(claims(**{"iat": now, "nbf": now, "exp": now + 3600, **changes}))


@pytest.fixture(scope="module")
def api(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("api")
    Volume(path / "issuer").write(key_set(("RS256", "one")))
    secret = path / "secrets" / "tokens"
    Volume(secret, "mailer").write(hash_of(MAILER))
    for name, token in (("reader", READER), ("boss", BOSS)):
        (secret / name).write_text(hash_of(token))
    routes = {kind: {"http": {"url": "http://127.0.0.1:9/"}} for kind in ("email", "push")}
    handler = {"http": {"url": "http://127.0.0.1:9/"}, "kinds": routes}
    with serving(flavour, path, api=API, handler=handler) as served:
        yield served


def call(api: Served, token: str, *request: Any) -> Reply:  # noqa: ANN401 -- method, path and body
    return api.call(*request, Authorization=f"Bearer {token}")


@pytest.mark.parametrize(
    ("token", "status"),
    [
        (None, 201),
        (MAILER, 201),
        (READER, 403),
        (account_token(sub="system:serviceaccount:shop:other"), 401),
        (account_token(aud=["other"]), 401),
        (account_token(exp=int(time.time()) - 1), 401),
        (new_token(), 401),
        ("x", 401),
    ],
    ids=["account", "named", "no right", "no such account", "audience", "expired", "unknown", "short"],
)
def test_who_proves_a_right_may_schedule(api: Served, token: str | None, status: int) -> None:
    given = token or account_token()
    reply = call(api, given, "PUT", f"/tasks/email/who-{abs(hash(token))}", LATER)
    assert reply.status == status
    assert ("www-authenticate" in reply.headers) == (status == 401)


def test_an_idle_api_with_rights_takes_at_most_60_mb(api: Served) -> None:
    """In a process that begins as in a pod: not in a fork, which has the modules of the tests."""
    where = (str(api.config), "--redis", api.server.url, "--port", "0", "--api-port", "0")
    process = Process.start(DELAYQ, "api", *where, env={"DELAYQ_SECRETS_DIR": str(api.dir / "secrets")})
    try:
        found = re.search(r'"api_port": (\d+)', process.wait_line('"api_serving"'))
        assert found
        other = copy(api)
        other.port = int(found[1])
        assert call(other, account_token(), "PUT", "/tasks/email/idle", LATER).status in (200, 201)
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        [resident] = [int(line.split()[1]) for line in lines if line.startswith("Rss:")]
        assert resident <= 60 * 1024
    finally:
        process.stop()


def test_without_a_token_nothing_but_the_description_is_answered(api: Served) -> None:
    for method, path in (("GET", "/queue"), ("POST", "/queue:suspend"), ("GET", "/tasks?state=scheduled")):
        reply = api.call(method, path)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert api.call("GET", "/openapi.json").status == 200


def test_kinds_are_listed_that_the_caller_may_read(api: Served) -> None:
    for token, kinds in ((MAILER, ["email"]), (READER, ["email", "push"])):
        reply = call(api, token, "GET", "/kinds")
        assert [each["kind"] for each in reply.body["items"]] == kinds


def test_changes_and_refusals_are_logged_with_who_and_without_payload_or_token(api: Served) -> None:
    api.call("PUT", "/tasks/email/logged", LATER, Authorization=f"Bearer {MAILER}", X_Request_Id="change-1")
    line = api.process.wait_line('"change-1"')
    assert json.loads(line) | {
        "event": "api_changed",
        "caller": "token:mailer",
        "verb": "schedule",
    } == json.loads(line)
    api.call("DELETE", "/tasks/email/logged", Authorization=f"Bearer {READER}", X_Request_Id="refusal-1")
    line = api.process.wait_line('"refusal-1"')
    assert json.loads(line) | {
        "event": "api_refused",
        "caller": "token:reader",
        "verb": "cancel",
    } == json.loads(line)
    hidden = ("of-a-customer", MAILER, READER, BOSS)
    assert not [each for each in hidden if each in api.process.output]


def test_a_token_is_replaced_and_revoked_without_a_restart(api: Served) -> None:
    volume, new = Volume(api.dir / "secrets" / "tokens", "mailer"), new_token()
    volume.version = 10
    volume.write(f"{hash_of(MAILER)}\n{hash_of(new)}")
    until(partial(status, api, new, 200, 201))
    assert status(api, MAILER, 200, 201)
    volume.write(hash_of(MAILER))
    until(partial(status, api, new, 401))
    assert status(api, MAILER, 200, 201)


def status(api: Served, token: str, *wanted: int) -> bool:
    return call(api, token, "PUT", "/tasks/email/rotated", LATER).status in wanted


def until(condition: Any, seconds: float = 30.0) -> None:  # noqa: ANN401 -- a function
    """Ask again until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_rights_in_the_document_it_listens_on_loopback_only(api: Served, tmp_path: Path) -> None:
    config = tmp_path / "queue.yaml"
    document = yaml.safe_load(api.config.read_text())
    del document["spec"]["api"]
    config.write_text(yaml.safe_dump(document))
    where = (str(config), "--redis", api.server.url, "--port", "0")
    refused = delayq("api", *where, "--api-host", "*", "--api-port", "0")
    assert refused.wait() == 3
    assert "spec.api: expected who may do what, to listen on *" in refused.output
    refused = delayq(
        *("api", str(api.config), "--redis", api.server.url, "--port", "0"),
        *("--api-host", "*", "--api-port", "0", "--no-authentication"),
    )
    assert refused.wait() == 3


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::"])  # noqa: S104 -- they are refused
def test_without_rights_no_address_of_other_hosts_is_bound(host: str) -> None:
    with pytest.raises(InvalidDocument, match=re.escape(f"to listen on {host}: without it, everyone")):
        _sockets(Listen(host=host, port=0), only_loopback=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_without_rights_an_address_of_this_host_is_bound(host: str) -> None:
    bound = _sockets(Listen(host=host, port=0), only_loopback=True)
    assert bound
    for each in bound:
        each.close()


def test_a_renewed_certificate_is_shown_without_a_restart(flavour: str, tmp_path: Path) -> None:
    secret = tmp_path / "secrets" / "tls"
    authorities = [trustme.CA(), trustme.CA()]
    write(secret, authorities[0])
    tls = {"certSecretRef": {"name": "tls"}, "keySecretRef": {"name": "tls"}}
    rules = [{"serviceAccount": {"namespace": "shop", "name": "web"}, "verbs": ["read"]}]
    with serving(flavour, tmp_path, api={"tls": tls, "access": rules}) as served:
        assert trusts(served.port, authorities[0])
        assert not trusts(served.port, authorities[1])
        (secret / "tls.crt").write_text("no certificate")
        served.process.wait_line("api_certificate_unusable")
        assert trusts(served.port, authorities[0])
        write(secret, authorities[1])
        until(partial(trusts, served.port, authorities[1]))


@pytest.mark.full
def test_10_000_handshakes_that_wait_are_bounded_and_end(flavour: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    write(tmp_path / "secrets" / "tls", authority)
    tls = {"certSecretRef": {"name": "tls"}, "keySecretRef": {"name": "tls"}}
    rules = [{"serviceAccount": {"namespace": "shop", "name": "web"}, "verbs": ["read"]}]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(12_000, hard), hard))
    with serving(flavour, tmp_path, api={"tls": tls, "access": rules}) as served, ExitStack() as stack:
        for _ in range(10_000):
            stack.enter_context(closing(served.socket()))
        assert resident_mb(served.process.pid) < 300
        until(partial(answers, served.port, authority))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answers(port: int, authority: trustme.CA) -> bool:
    """The same of a client that has no answer while no connection is accepted."""
    try:
        return trusts(port, authority)
    except OSError:
        return False


def write(secret: Path, authority: trustme.CA) -> None:
    made = authority.issue_cert("127.0.0.1")
    secret.mkdir(parents=True, exist_ok=True)
    (secret / "tls.key").write_bytes(made.private_key_pem.bytes())
    (secret / "tls.crt").write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))


def trusts(port: int, authority: trustme.CA) -> bool:
    """Whether a client that trusts this authority alone gets an answer."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    try:
        with closing(HTTPSConnection("127.0.0.1", port, context=context, timeout=10)) as connection:
            connection.request("GET", "/v1alpha1/queue")
            return connection.getresponse().status == 401
    except ssl.SSLError:
        return False
