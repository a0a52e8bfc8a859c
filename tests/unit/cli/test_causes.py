"""Doctor names the field that mends what a server, OpenSSL or the network says."""

from __future__ import annotations

import pytest
from delayq.cli.doctor.causes import hint


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("WRONGPASS invalid username-password pair or user is disabled", "spec.redis.auth"),
        ("NOAUTH Authentication required", "spec.redis.auth"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate",
            "spec.redis.tls",
        ),
        (
            "certificate verify failed: Hostname mismatch, certificate is not valid for 'redis'",
            "serverName (?ssl_server_name=)",
        ),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "certSecretRef"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS"),
        ("connection closed by server", "does it require TLS"),
        ("NOPERM this user has no permissions to run the 'role' command", "delayq acl"),
    ],
)
def test_the_field_that_mends_it_is_named(said: str, field: str) -> None:
    assert field in hint(said)


def test_a_database_beyond_those_of_the_server_is_told_with_its_number() -> None:
    assert hint("NOAUTH Authentication required", sentinel=True).startswith("spec.redis.sentinel.auth")
    said = "Redis at 127.0.0.1:6379 refused connect: DB index is out of range"
    assert hint(said, database=17).startswith(
        "spec.redis.database is 17, and the server's setting `databases`"
    )
