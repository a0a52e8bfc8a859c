"""Doctor names the field that mends what a server, OpenSSL or the network says."""

from __future__ import annotations

from delayq.cli.doctor.causes import hint


def test_the_field_that_mends_it_is_named() -> None:
    for said, field in (
        ("NOAUTH Authentication required", "spec.redis.auth"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate",
            "spec.redis.tls",
        ),
        ("certificate verify failed: Hostname mismatch, certificate is not valid for 'redis'", "serverName"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "certSecretRef"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS"),
        ("connection closed by server", "does it require TLS"),
        ("NOPERM this user has no permissions to run the 'role' command", "delayq acl"),
    ):
        assert field in hint(said), said
    assert hint("NOAUTH Authentication required", sentinel=True).startswith("spec.redis.sentinel.auth")
