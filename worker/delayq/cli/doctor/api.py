"""Check the files of spec.api: the hashes of named tokens, and the certificate.

Only where no operator mounts them: on Kubernetes, only API pods have these files. See the condition ApiAvailable.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from delayq.api.access.named_tokens import NamedTokens
from delayq.api.tls import Certificate
from delayq.cli.doctor.findings import Finding, failed, ok, warning
from delayq.connection.address import secrets_dir
from delayq.contract.files import CONFIG_FILE
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.cli.target import Target
    from delayq.contract.api import Api

NAME: Final = "api"
CURE: Final = "$DELAYQ_SECRETS_DIR is the directory of the Secrets; are they mounted where the API runs?"


def api(target: Target) -> Iterator[Finding]:
    """Check that each named token has a valid hash, and that the certificate fits its key."""
    document, path = target.document, target.path
    if document is None or document.spec.api is None or path == Path(CONFIG_FILE):
        return
    problems = list(_problems(document.spec.api))
    for problem in problems:
        # Where only Redis is given, the files may be elsewhere.
        yield (warning if target.source == "--redis" else failed)(NAME, problem, CURE)
    if not problems:
        yield ok(NAME, "the files of spec.api can be used")


def _problems(spec: Api) -> Iterator[str]:
    tokens = NamedTokens(dict.fromkeys(key for _, key in spec.more_references), secrets_dir())
    for key, problem in tokens.problems.items():
        yield f"spec.api.access: the token {key.key} is refused: {problem}"
    try:
        if spec.tls is not None:
            Certificate(spec.tls, secrets_dir())
    except InvalidDocument as error:
        yield f"the API cannot start: {error}"
