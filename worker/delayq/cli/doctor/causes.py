"""Map errors of servers, OpenSSL and the network to likely causes and the fields that correct them."""

from __future__ import annotations

from typing import Final

RIGHTS: Final = (
    "the user lacks rights: delayq acl (for Sentinels, with --sentinel) prints the rule; "
    "apply it on every server"
)
NO_TLS: Final = "another port, or no spec.redis.tls (redis:// instead of rediss://)"
_CAUSES: Final = (
    (("noperm", "no permissions", "can't run this"), RIGHTS),
    (
        ("hostname mismatch", "ip address mismatch", "certificate is not valid for"),
        "the certificate names another host: spec.redis.tls.serverName (?ssl_server_name=) sets the expected name",
    ),
    (
        ("certificate required", "certificate_required", "handshake failure", "handshake_failure"),
        "the server wants a client certificate: spec.redis.tls.certSecretRef",
    ),
    (
        ("certificate verify failed", "certificate_verify_failed", "self-signed", "self signed"),
        "another CA signed its certificate: is the CA of spec.redis.tls the right one, and current?",
    ),
    (
        ("wrong version number", "wrong_version_number", "record layer failure", "record_layer_failure"),
        f"it does not speak TLS at this port: {NO_TLS}",
    ),
    (("alert", "ssl", "certificate"), "spec.redis.tls: do the certificates of server and client match?"),
    (("loading",), "Redis is loading its data: wait"),
    (
        ("timeout", "timed out"),
        "it accepts connections and does not answer: is it stopped or overloaded, or does it require TLS?",
    ),
    (
        ("closed", "reset", "lost", "broken pipe"),
        "it closes the connection: does it require TLS (spec.redis.tls, rediss://), or is it not Redis?",
    ),
)


def hint(why: str, *, sentinel: bool = False, database: int = 0) -> str:
    """Return the hint for an error. `database`: the requested database."""
    lower = why.lower()
    if "db index is out of range" in lower:
        return f"spec.redis.database is {database}, and the server's setting `databases` allows fewer"
    if any(word in lower for word in ("noauth", "wrongpass", "password", "authentication", "auth ")):
        field = "spec.redis.sentinel.auth" if sentinel else "spec.redis.auth"
        return f"{field}: is the Secret the right one, and current?"
    found = (cause for patterns, cause in _CAUSES if any(pattern in lower for pattern in patterns))
    return next(found, "does Redis require TLS there, or is it not Redis? spec.redis.tls")
