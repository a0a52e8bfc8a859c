"""Kubeconfig files: a user's credentials, and the address of the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

NAME = "delayq-tests"


def write(path: Path, *, cluster: dict[str, Any], token: str, namespace: str | None = None) -> Path:
    """Write a kubeconfig for the bearer of a token; `cluster` as in a kubeconfig: server, certificate-authority…"""
    context = {"cluster": NAME, "user": NAME} | ({"namespace": namespace} if namespace else {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": context}],
        "current-context": NAME,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path


def cluster_of(path: Path) -> dict[str, Any]:
    """The cluster that a kubeconfig's current context points to, certificates as absolute paths or inline."""
    document = yaml.safe_load(path.read_text())
    current = document["current-context"]
    context = next(item["context"] for item in document["contexts"] if item["name"] == current)
    named = next(item for item in document["clusters"] if item["name"] == context["cluster"])
    cluster: dict[str, Any] = dict(named["cluster"])
    if authority := cluster.get("certificate-authority"):
        cluster["certificate-authority"] = str(path.parent / authority)
    return cluster
