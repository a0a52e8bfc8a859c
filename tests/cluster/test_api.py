"""The operator's client against a real API server: what its answers mean, and that connections do not run out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq_operator.base import names
from delayq_operator.base.errors import Invalid, Unavailable
from delayq_operator.kube.api import Api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.control_plane import ControlPlane

MANY: Final = 150


@pytest.fixture
async def api(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    where = "kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"  # read when it is imported
    monkeypatch.setattr(where, str(cluster.kubeconfig))
    api = await Api.connect()
    yield api
    await api.close()


def deployment(namespace: str, name: str = "some", **container: Any) -> dict[str, Any]:  # noqa: ANN401  parts of it
    spec = {"containers": [{"name": "main", "image": "image", **container}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": name}}, "replicas": 0, "template": template},
    }


def config_map(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
    }


REFUSED: Final[tuple[dict[str, Any], ...]] = (
    {"unheard": "of"},
    {"env": [{"name": "A", "value": 1}]},
    {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
    {"env": {"A": "B"}},
    {"stdin": "yes"},
    {"resources": {"requests": {"cpu": "lots"}}},
    {"ports": [{"containerPort": 1.5}]},
    {"imagePullPolicy": "Sometimes"},
)


async def test_what_the_api_server_does_not_take_is_invalid(api: Api, namespace: str) -> None:
    """Server-side apply answers 500 to most of it."""
    for container in REFUSED:
        with pytest.raises(Invalid):
            await api.apply(names.DEPLOYMENT, deployment(namespace, **container), manager="test")


async def test_an_api_server_whose_store_is_away_is_unavailable(
    control_plane: ControlPlane, api: Api, namespace: str
) -> None:
    """However it says so: it times out, or answers 500 with words of its store's."""
    control_plane.etcd.pause()
    with pytest.raises(Unavailable):
        await api.apply(names.CONFIG_MAP, config_map(namespace, "some"), manager="test")
    with pytest.raises(Unavailable):
        await api.create(names.CONFIG_MAP, config_map(namespace, "some"))


async def test_watches_leave_connections_for_everybody_else(api: Api, namespace: str) -> None:
    opened = asyncio.Semaphore(0)
    first = await api.create(names.CONFIG_MAP, config_map(namespace, "first"))
    await api.create(names.CONFIG_MAP, config_map(namespace, "second"))  # what each watch brings at once
    version = first["metadata"]["resourceVersion"]

    async def watch() -> None:
        async for _ in api.watch(
            names.CONFIG_MAP,
            namespace,
            resource_version=version,
            label_selector=None,
            metadata_only=True,
            timeout_seconds=60,
            silence_seconds=60,
        ):
            opened.release()
            await asyncio.Event().wait()

    watches = [asyncio.create_task(watch()) for _ in range(MANY)]
    try:
        async with asyncio.timeout(30):
            for _ in range(MANY):
                await opened.acquire()
            await api.get(names.CONFIG_MAP, namespace, "first")
            await api.hasty(4).get(names.CONFIG_MAP, namespace, "first")
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
