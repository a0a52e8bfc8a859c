"""The operator's client against a real API server: what its answers mean, and that connections do not run out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq_operator.base import names
from delayq_operator.kube.api import Api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.harness.cluster import Cluster

MANY: Final = 150


@pytest.fixture
async def api(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    where = "kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"  # read when it is imported
    monkeypatch.setattr(where, str(cluster.kubeconfig))
    api = await Api.connect()
    yield api
    await api.close()


def config_map(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
    }


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
