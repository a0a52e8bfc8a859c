"""An HTTP service, as handlers and checks call it: where it is, and what each call carries."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from delayq.contract.fields import dictionary, section, sections_by_name, text
from delayq.contract.record import Shape, exclusive, without
from delayq.contract.references import CaConfigMapRef, CaSecretRef, HeaderSecretRef, SigningSecretRef
from delayq.contract.words import HEADER_NAME, HEADER_VALUE, URL

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_SECRET_HEADERS: Final = 16
_OWN: Final = "^(delayq-|(content-(length|type)|idempotency-key|transfer-encoding)$)"


def _named_twice(headers: Mapping[str, str], secret_headers: Mapping[str, object] | None) -> list[str]:
    secret, plain = list(secret_headers or ()), {name.lower() for name in headers}
    lower = [name.lower() for name in secret]
    return [name for name in secret if name.lower() in plain or lower.count(name.lower()) > 1]


def _of_delayq(headers: Mapping[str, str], secret_headers: Mapping[str, object] | None) -> list[str]:
    names = (*headers, *(secret_headers or ()))
    return [name for name in names if re.match(_OWN, name.lower())]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpService:
    """A service that is called with POST."""

    SHAPE: ClassVar[Shape] = Shape(
        rules=(
            exclusive("ca_secret_ref", "ca_config_map_ref"),
            without(
                _named_twice,
                "headers and secretHeaders must not name the same header",
                "headers",
                "secret_headers",
                cel="!has(self.secretHeaders) || self.secretHeaders.all(name, "
                "self.secretHeaders.exists_one(other, other.lowerAscii() == name.lowerAscii()) "
                "&& (!has(self.headers) || !self.headers.exists(other, other.lowerAscii() == name.lowerAscii())))",
            ),
            without(
                _of_delayq,
                "headers and secretHeaders must not name what delayq sets itself: Content-Length, Content-Type, "
                "Idempotency-Key, Transfer-Encoding and Delayq-*",
                "headers",
                "secret_headers",
                cel=" && ".join(
                    f"(!has(self.{field}) || !self.{field}.exists(name, name.lowerAscii().matches('{_OWN}')))"
                    for field in ("headers", "secretHeaders")
                ),
            ),
        )
    )

    url: str = text(URL, doc="Where to POST the payload; http or https, without user name and password.")
    headers: Mapping[str, str] = dictionary(
        name=HEADER_NAME,
        value=HEADER_VALUE,
        most=64,
        doc="Headers to send along; not a place for secrets: secretHeaders is.",
    )
    secret_headers: Mapping[str, HeaderSecretRef] | None = sections_by_name(
        HeaderSecretRef,
        name=HEADER_NAME,
        most=MOST_SECRET_HEADERS,
        doc="Headers whose values are in Secrets, such as Authorization.",
    )
    ca_secret_ref: CaSecretRef | None = section(
        CaSecretRef,
        default=None,
        doc="Certificate authority to trust instead of the system's, for https. Absent: the system's own.",
    )
    ca_config_map_ref: CaConfigMapRef | None = section(
        CaConfigMapRef, default=None, doc="The same, from a ConfigMap."
    )
    signing_secret_ref: SigningSecretRef | None = section(
        SigningSecretRef, default=None, doc="Key to sign each call with (HMAC). Absent: calls are not signed."
    )
