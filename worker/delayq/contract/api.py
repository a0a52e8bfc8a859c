"""spec.api: the HTTP API of a queue, and who may use it."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, get_args

from delayq.contract.fields import flag, listing, section, sections, text, whole
from delayq.contract.files import Reference
from delayq.contract.kinds import Choice
from delayq.contract.record import Rule, Shape
from delayq.contract.references import CertSecretRef, KeySecretRef
from delayq.contract.words import ACCOUNT_NAME, KIND_NAME, NAMESPACE, SECRET_KEY, SECRET_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

Verb = Literal[
    "schedule", "cancel", "reschedule", "read", "read-payloads", "dead-letters", "run-schedules", "suspend"
]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
MOST_RULES: Final = 64
MOST_KINDS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountRef:
    """A ServiceAccount of the cluster."""

    SHAPE: ClassVar[Shape] = Shape(atomic=True)

    namespace: str = text(NAMESPACE, doc="Namespace of the ServiceAccount.")
    name: str = text(ACCOUNT_NAME, doc="Name of the ServiceAccount.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """What one caller may do. A caller with several entries may do what any of them allows."""

    SHAPE: ClassVar[Shape] = Shape(one_of=("service_account", "token"))

    service_account: ServiceAccountRef | None = section(
        ServiceAccountRef,
        default=None,
        doc="The caller, known by a projected token with the audience delayq.",
    )
    token: str | None = text(
        SECRET_KEY, default=None, doc="The caller, known by a token: its name, a key of tokensSecretRef."
    )
    verbs: tuple[Verb, ...] = listing(
        Choice(VERBS), least=1, most=len(VERBS), doc="What the caller may do. read returns no payloads."
    )
    kinds: tuple[str, ...] | None = listing(
        KIND_NAME,
        least=1,
        most=MOST_KINDS,
        default=None,
        doc="Kinds of task that it may do this with. Absent: all, tasks without a kind, and the queue as a whole.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensSecretRef:
    """A Secret with a key for each named token."""

    name: str = text(SECRET_NAME, doc="Name of the Secret.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiTls:
    """The certificate that the API shows; it is read again when it changes."""

    cert_secret_ref: CertSecretRef = section(CertSecretRef, doc="Certificate chain.")
    key_secret_ref: KeySecretRef = section(KeySecretRef, doc="Private key of the certificate.")


def _tokens_without_a_secret(access: tuple[AccessRule, ...], secret: TokensSecretRef | None) -> bool:
    return secret is not None or all(each.token is None for each in access)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The HTTP API: with it, programs in any language schedule tasks."""

    SHAPE: ClassVar[Shape] = Shape(
        rules=(
            Rule(
                "access with a token needs tokensSecretRef",
                ("access", "tokens_secret_ref"),
                _tokens_without_a_secret,
                "has(self.tokensSecretRef) || !self.access.exists(each, has(each.token))",
            ),
            Rule(
                "write either tls, or allowPlainHttp: true, with which anyone on the way reads tokens and payloads",
                ("tls", "allow_plain_http"),
                lambda tls, plain: (tls is None) == plain,
                # The API server tries a rule before it stores defaults, too.
                "has(self.tls) != (has(self.allowPlainHttp) && self.allowPlainHttp)",
            ),
        )
    )

    replicas: int = whole(0, 100, default=2, doc="Number of API pods.")
    access: tuple[AccessRule, ...] = sections(
        AccessRule, least=1, most=MOST_RULES, doc="Who may call the API, and what each caller may do."
    )
    tokens_secret_ref: TokensSecretRef | None = section(
        TokensSecretRef,
        default=None,
        doc="Secret with named tokens, for callers outside the cluster. Each key is a name; its value is the SHA-256 "
        "of the token, one per line while two are valid.",
    )
    tls: ApiTls | None = section(ApiTls, default=None, doc="Certificate of the API. Absent: plain HTTP.")
    allow_plain_http: bool = flag(
        default=False, doc="Serve HTTP without TLS, for example behind a proxy of a service mesh."
    )

    @property
    def more_references(self) -> Iterator[tuple[str, Reference]]:
        """The key of the Secret for each named token, with the path of its entry."""
        secret = self.tokens_secret_ref
        for index, rule in enumerate(self.access if secret is not None else ()):
            if secret is not None and rule.token is not None:
                yield f"access[{index}].token", Reference("Secret", secret.name, rule.token)
