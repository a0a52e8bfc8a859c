"""Errors of the operator; those of the API server are in delayq.kube.errors."""

from __future__ import annotations

from delayq.kube.errors import KubernetesError


class LeadershipLost(KubernetesError):
    """Another operator holds the Lease."""
