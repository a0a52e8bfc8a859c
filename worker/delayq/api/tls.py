"""The certificate of the API, which is read again when its files change: no restart when it is renewed."""

from __future__ import annotations

import hashlib
import logging
import ssl
from typing import TYPE_CHECKING

from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract.api import ApiTls

log = logging.getLogger(__name__)


class Certificate:
    """A TLS context with the certificate and the key that are in the files."""

    def __init__(self, spec: ApiTls, secrets_dir: Path) -> None:
        """InvalidDocument if a file is missing, or the two do not belong together."""
        references = (spec.cert_secret_ref.reference, spec.key_secret_ref.reference)
        self._files = [each.file(secrets_dir) for each in references]
        self._digest, self._problem = b"", ""
        self.context = _context()
        if problem := self._load():
            raise InvalidDocument(f"spec.api.tls: {problem}")

    def refresh(self) -> None:
        """Use the files as they are now, for new connections. If they are not valid, keep what was read before."""
        problem = self._load()
        if problem and problem != self._problem:
            log.warning("api_certificate_unusable", extra={"fields": {"problem": problem}})
        self._problem = problem

    def _load(self) -> str:
        """Load files that have changed; return why that is not possible."""
        certificate, key = self._files
        try:
            digest = hashlib.sha256(certificate.read_bytes() + b"\0" + key.read_bytes()).digest()
            if digest == self._digest:
                return ""
            for context in (_context(), self.context):  # first one that no connection uses
                # Without a password argument, OpenSSL would prompt at the terminal.
                context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            return f"expected a certificate as {certificate} and its key as {key}, both PEM; got {why}"
        self._digest = digest
        return ""


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
