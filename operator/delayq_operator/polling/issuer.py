"""Reads the public keys of ServiceAccount tokens from the API server, for the HTTP APIs of queues.

Kubernetes lets every ServiceAccount read them (ClusterRole system:service-account-issuer-discovery). Reconciliation
copies them into a ConfigMap of each queue that has spec.api.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from delayq.kube.errors import KubernetesError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq_operator.base.names import Key
    from delayq_operator.cache.issuer import Issuer
    from delayq_operator.cache.queues import Queues
    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

DISCOVERY: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"
PERIOD_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0
STEP_SECONDS: Final = 1.0
MOST_BYTES: Final = 65_536
"""Of all keys as JSON: each takes 400 to 800."""
PUBLIC: Final = ("kid", "kty", "alg", "use", "n", "e", "crv", "x", "y")
"""Members of a public key. No other one is copied."""


class IssuerKeys:
    """Keeps what is known of the issuer current."""

    def __init__(self, api: Api, queues: Queues, issuer: Issuer, enqueue: Callable[[Key], None]) -> None:
        """`enqueue`: called with each queue that needs the keys, when they have changed."""
        self._api, self._queues, self._issuer, self._enqueue = api, queues, issuer, enqueue
        self._due = 0.0

    async def run(self) -> None:
        """Read periodically until cancelled, while a queue needs the keys."""
        while True:
            await self.step()
            await asyncio.sleep(STEP_SECONDS)

    async def step(self) -> bool:
        """Read the keys if they are due; return whether they were read."""
        self._issuer.asking = {key for key in self._issuer.asking if self._queues.uid(key)}
        if not self._issuer.asking or time.monotonic() < self._due:
            return False
        try:
            keys, error = await self._read(), ""
        except (KubernetesError, ValueError) as failed:
            keys, error = self._issuer.keys, _why(failed)
        self._due = time.monotonic() + (RETRY_SECONDS if error else PERIOD_SECONDS)
        self._take(keys, error)
        return not error

    def _take(self, keys: str, error: str) -> None:
        if (keys, error) == (self._issuer.keys, self._issuer.error):
            return
        if error:
            log.warning("issuer_keys_unavailable", extra={"fields": {"error": error}})
        elif keys != self._issuer.keys:
            log.info("issuer_keys_changed", extra={"fields": {"keys": _named(keys)}})
        self._issuer.keys, self._issuer.error = keys, error
        for key in self._issuer.asking:
            self._enqueue(key)

    async def _read(self) -> str:
        discovery, found = await self._api.read(DISCOVERY), await self._api.read(KEYS)
        return key_set(discovery, found)


def key_set(discovery: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the file that the API's pods read: a JSON Web Key Set with its issuer. ValueError if it is none."""
    issuer, keys = discovery.get("issuer"), found.get("keys")
    if not isinstance(issuer, str) or not isinstance(keys, list) or not keys:
        raise ValueError(f"expected an issuer at {DISCOVERY} and keys at {KEYS}")
    kept = [{name: each[name] for name in PUBLIC if name in each} for each in keys if isinstance(each, dict)]
    kept.sort(key=lambda each: str(each.get("kid")))
    text = json.dumps({"issuer": issuer, "keys": kept}, sort_keys=True)
    if len(text) > MOST_BYTES:
        raise ValueError(f"expected at most {MOST_BYTES:,} bytes of keys at {KEYS}, got {len(text):,}")
    return text


def _named(keys: str) -> list[str]:
    return [str(each.get("kid")) for each in json.loads(keys)["keys"]]


def _why(error: Exception) -> str:
    """Say what to do about an error: only a changed cluster refuses, or serves no such path."""
    if isinstance(error, NotFound):
        return f"{error}: the issuer of the cluster is no https URL, see --service-account-issuer of the API server"
    return str(error)
