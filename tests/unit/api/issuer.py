"""An issuer of ServiceAccount tokens with real keys, and the volume that its keys are mounted in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

if TYPE_CHECKING:
    from pathlib import Path

ISSUER = "https://kubernetes.default.svc.cluster.local"
NOW = 1_800_000_000
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@cache
def private_key(algorithm: str, kid: str) -> PrivateKey:  # noqa: ARG001 -- each kid has a key of its own
    if algorithm.startswith("RS"):
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(CURVES[algorithm])


def public_jwk(key: PrivateKey, kid: str, **more: object) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        found = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        found = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {"kid": kid, "use": "sig", **found, **more}


def claims(**changes: object) -> dict[str, Any]:
    """The claims of a projected token as Kubernetes issues them; a change to None leaves one out."""
    made: dict[str, Any] = {
        "aud": ["delayq"],
        "exp": NOW + 3600,
        "iat": NOW,
        "iss": ISSUER,
        "jti": "6b0f3a2e-0000-4000-8000-000000000000",
        "kubernetes.io": {
            "namespace": "shop",
            "node": {"name": "node-1", "uid": "a"},
            "pod": {"name": "web-0", "uid": "b"},
            "serviceaccount": {"name": "web", "uid": "c"},
        },
        "nbf": NOW,
        "sub": "system:serviceaccount:shop:web",
    }
    return {name: value for name, value in {**made, **changes}.items() if value is not None}


def sign(payload: dict[str, Any], algorithm: str = "RS256", kid: str = "one", **header: object) -> str:
    """Sign claims of any shape, also those that PyJWT itself would refuse to make."""
    content, headers = json.dumps(payload).encode(), {"kid": kid, **header}
    return jwt.PyJWS().encode(content, private_key(algorithm, kid), algorithm, headers=headers)


def key_set(*keys: tuple[str, str], issuer: str = ISSUER) -> dict[str, Any]:
    """The file of the operator, with the public keys of (algorithm, kid)."""
    found = [public_jwk(private_key(algorithm, kid), kid, alg=algorithm) for algorithm, kid in keys]
    return {"issuer": issuer, "keys": found}


@dataclass
class Volume:
    """A ConfigMap volume: the file is a link into `..data`, which the kubelet swaps as a whole."""

    folder: Path
    name: str = "jwks.json"
    version: int = field(default=0, init=False)

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def write(self, content: object) -> None:
        self.version += 1
        made = self.folder / f"..{self.version}"
        made.mkdir(parents=True)
        (made / self.name).write_text(content if isinstance(content, str) else json.dumps(content))
        new = self.folder / "..data_tmp"
        new.symlink_to(made.name)
        new.replace(self.folder / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to(f"..data/{self.name}")
