"""The token with which scanners watch DelaySchedules: mounted into their own container, and into no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delayq.kube.objects import Object

VOLUME: Final = "delayq-token"
PROTECTED: Final = ("serviceAccountName", "automountServiceAccountToken")
_DIRECTORY: Final = "/var/run/secrets/delayq.dev/serviceaccount"
_NAMESPACE: Final = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
_SOURCES: Final = (  # what the kubelet mounts of a ServiceAccount by default; it renews the token in time
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [_NAMESPACE]}},
)


def template(account: str) -> Object:
    """Return what a pod template of scanners needs besides."""
    container = {
        "name": "scanner",
        "env": [{"name": "DELAYQ_SERVICE_ACCOUNT_DIR", "value": _DIRECTORY}],
        "volumeMounts": [{"name": VOLUME, "mountPath": _DIRECTORY, "readOnly": True}],
    }
    volume = {"name": VOLUME, "projected": {"defaultMode": 0o444, "sources": [*_SOURCES]}}
    return {"spec": {"serviceAccountName": account, "containers": [container], "volumes": [volume]}}
