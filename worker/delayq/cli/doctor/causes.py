"""From what a server, OpenSSL or the network says to what is likely wrong, and which field corrects it."""

from __future__ import annotations

from typing import Final

RIGHTS: Final = (
    "the user lacks rights: delayq acl (for Sentinels, with --sentinel) prints the rule, "
    "which each of them needs by itself"
)
NO_TLS: Final = "another port, or no spec.redis.tls (redis:// instead of rediss://)"
_CAUSES: Final = (
    (("noperm", "no permissions", "can't run this"), RIGHTS),
    (
        ("hostname mismatch", "ip address mismatch", "certificate is not valid for"),
        "the certificate names another host: spec.redis.tls.serverName (?ssl_server_name=) says which to expect",
    ),
    (
        ("certificate required", "certificate_required", "handshake failure", "handshake_failure"),
        "the server wants a client certificate: spec.redis.tls.certSecretRef",
    ),
    (
        ("certificate verify failed", "certificate_verify_failed", "self-signed", "self signed"),
        "its certificate is signed by another CA: is that of spec.redis.tls the right one, and current?",
    ),
    (
        ("wrong version number", "wrong_version_number", "record layer failure", "record_layer_failure"),
        f"it does not speak TLS at this port: {NO_TLS}",
    ),
    (("alert", "ssl", "certificate"), "spec.redis.tls: do its certificate and ours fit?"),
    (("loading",), "Redis is reading its file: wait"),
    (
        ("timeout", "timed out"),
        "it accepts connections and does not answer: is it stopped or overloaded, or does it want TLS?",
    ),
    (
        ("closed", "reset", "lost", "broken pipe"),
        "it hangs up: does it want TLS (spec.redis.tls, rediss://), or does something else listen there?",
    ),
)


def hint(why: str, *, sentinel: bool = False, database: int = 0) -> str:
    """Return what to do about it. `database` is the one that was asked for."""
    lower = why.lower()
    if "db index is out of range" in lower:
        return f"spec.redis.database is {database}, and the server's setting `databases` allows fewer"
    if any(word in lower for word in ("noauth", "wrongpass", "password", "authentication", "auth ")):
        field = "spec.redis.sentinel.auth" if sentinel else "spec.redis.auth"
        return f"{field}: is the Secret the right one, and current?"
    found = (said for words, said in _CAUSES if any(word in lower for word in words))
    return next(found, "does Redis speak TLS there, or something else listen? spec.redis.tls")
