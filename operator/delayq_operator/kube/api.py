"""The Kubernetes API, as much of it as the operator needs: read, apply, delete, list. JSON in, JSON out.

The only module that imports the Kubernetes client. Its dynamic client is used without discovery and without models:
the operator has the paths of its kinds, and models cost memory for each object.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from delayq.kube.errors import ApiError, NoCluster, NotFound, Unavailable, answered
from delayq.kube.objects import path
from delayq.kube.watching import SERVER_ERROR
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.dynamic import DynamicClient

from delayq_operator.base import metrics
from delayq_operator.base.names import CONFIG_MAP
from delayq_operator.kube.page import PAGE, Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from delayq.kube.objects import Kind, Object

APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
ANY_JSON: Final = "application/json, application/jwk-set+json"
"""The API server answers 406 to a request for /openid/v1/jwks that does not accept the second."""
TIMEOUT_SECONDS: Final = 15.0
UNLIMITED: Final = 0  # connections
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Api:
    """A client of the API server."""

    def __init__(
        self, configuration: kubernetes_client.Configuration, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._configuration, self._timeout_seconds = configuration, timeout_seconds
        self._dynamic = DynamicClient(kubernetes_client.ApiClient(configuration))  # type: ignore[no-untyped-call]
        self._others: list[Api] = []
        self.may_write: Callable[[], bool] = lambda: True

    def hasty(self, timeout_seconds: float) -> Api:
        """Return a separate client for the Lease: it has its own connections, and may write without leadership."""
        other = Api(self._configuration, timeout_seconds=timeout_seconds)
        self._others.append(other)
        return other

    @classmethod
    async def connect(cls) -> Api:
        """Return a client with the pod's service account, else with $KUBECONFIG; NoCluster without either.

        It sends no request.
        """
        configuration = kubernetes_client.Configuration()
        configuration.retries = None  # the caller decides what to retry
        configuration.connection_pool_maxsize = UNLIMITED
        configuration.disable_strict_ssl_verification = (
            True  # without the checks that Python 3.13 adds; many authorities fail them
        )
        try:
            if os.environ.get("KUBERNETES_SERVICE_HOST"):
                kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                    os.environ.get("KUBECONFIG"), client_configuration=configuration
                )
        except (kubernetes_config.ConfigException, OSError) as error:
            raise NoCluster(str(error)) from error
        return cls(configuration)

    async def close(self) -> None:
        for other in self._others:
            await other.close()
        await self._dynamic.client.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Read one object; raises NotFound."""
        return await self._call("get", path(kind, namespace, name))

    async def read(self, where: str) -> Object:
        """Read JSON at a path that is no object, such as /openid/v1/jwks; raises NotFound."""
        return await self._call("get", where, header_params={"Accept": ANY_JSON})

    async def apply(
        self, kind: Kind, body: Object, *, manager: str, force: bool = True, subresource: str | None = None
    ) -> Object:
        """Create or change an object by server-side apply; returns the result. Raises Conflict unless `force`."""
        metadata = body["metadata"]
        return await self._call(
            "patch",
            path(kind, metadata["namespace"], metadata["name"], subresource),
            body=body,
            content_type=APPLY,
            field_manager=manager,
            force_conflicts=force,
        )

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Change an object by merge patch. Raises Conflict if the patch has an outdated metadata.resourceVersion."""
        return await self._call("patch", path(kind, namespace, name), body=patch, content_type=MERGE)

    async def create(self, kind: Kind, body: Object) -> Object:
        """Create an object; raises Conflict if the name exists."""
        return await self._call("post", path(kind, body["metadata"]["namespace"]), body=body)

    async def terminating(self, namespace: str) -> bool:
        """Whether the API server rejects new objects because the namespace is being deleted.

        Uses a dry run: reading the namespace would need one more permission.
        """
        body: Object = {"metadata": {"generateName": "delayq-dry-run-"}}
        try:
            await self._call("post", path(CONFIG_MAP, namespace), body=body, query_params=[("dryRun", "All")])
        except NotFound:
            return True
        except ApiError as error:
            return "NamespaceTerminating" in error.causes
        return False

    async def replace(self, kind: Kind, body: Object) -> Object:
        """Replace an object; raises Conflict if the resourceVersion in `body` is outdated."""
        metadata = body["metadata"]
        return await self._call("put", path(kind, metadata["namespace"], metadata["name"]), body=body)

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str | None = None) -> None:
        """Delete an object and, in the background, its dependents. With `uid`, only if it has this UID."""
        body: Object = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        await self._call("delete", path(kind, namespace, name), body=body)

    async def pages(
        self, kind: Kind, namespace: str | None, *, label_selector: str | None
    ) -> AsyncIterator[Page]:
        """List objects page by page; metadata.resourceVersion of each is that of the whole list. Raises Gone."""
        further: str | None = None
        while further != "":
            query = [("limit", str(PAGE)), *([("continue", further)] if further else [])]
            page = Page(
                await self._answer(
                    "get",
                    path(kind, namespace),
                    query_params=query,
                    label_selector=label_selector,
                    header_params={"Accept": "application/json"},
                )
            )
            yield page
            further = page.metadata.get("continue", "")

    async def _call(self, verb: str, where: str, **arguments: Any) -> Object:  # noqa: ANN401 -- the client's own
        with _translated():
            result: Object = json.loads(await self._answer(verb, where, **arguments))
            return result

    async def _answer(self, verb: str, where: str, **arguments: Any) -> bytes:  # noqa: ANN401 -- the client's own
        if verb != "get" and not self.may_write():
            raise Unavailable("another operator may lead by now")
        arguments.setdefault("_request_timeout", self._timeout_seconds)
        with _translated():
            async with asyncio.timeout(self._timeout_seconds):
                response = await self._dynamic.request(verb, where, serialize=False, **arguments)
                result: bytes = await response.read()
        if verb != "get":
            metrics.API_WRITES.labels(verb, where.rpartition("/namespaces/")[2].split("/")[1]).inc()
        return result


@contextmanager
def _translated() -> Iterator[None]:
    """Convert the client's exceptions to KubernetesErrors."""
    try:
        yield
    except ApiException as error:
        raise answered(error.status or SERVER_ERROR, error.reason or "", error.body) from error
    except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError, RecursionError) as error:
        raise Unavailable(str(error) or type(error).__name__) from error


def own_namespace() -> str | None:
    """Namespace of the pod this runs in; None outside of one."""
    file = ACCOUNT / "namespace"
    return os.environ.get("POD_NAMESPACE") or (
        file.read_text(encoding="utf-8").strip() if file.exists() else None
    )


def own_service_account() -> str | None:
    """Name of the ServiceAccount whose token this pod has; None outside of one."""
    try:
        claims = (ACCOUNT / "token").read_text(encoding="utf-8").split(".")[1]
        subject = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]
    except (OSError, LookupError, ValueError, TypeError):
        return None
    return str(subject).rpartition(":")[2] or None
