"""The chart on the node, from images of this checkout: `helm test` passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.node.harness import chart

if TYPE_CHECKING:
    from tests.node.harness.node import Node


def test_helm_test_passes_shows_its_log_and_leaves_no_queue(
    node: Node, images: dict[str, str], namespace: str
) -> None:
    assert images["operator"]
    redis = node.redis(namespace)
    chart.install(node, namespace, redis, "--set", f"watchNamespaces={{{namespace}}}")
    try:
        arguments = (f"--namespace={namespace}", "--timeout=2m", "--logs")
        done = node.cluster.helm("test", chart.RELEASE, *arguments)
        assert "Phase:          Succeeded" in done.stdout
        assert "\npassed\n" in done.stdout + done.stderr
        queues = node.cluster.kubectl(
            "get", "delayqueues", f"--namespace={namespace}", "--output=name"
        ).stdout
        assert queues == ""
    finally:
        chart.uninstall(node, namespace)
        # Helm keeps it, and with it whose release it is: that of other tests could not be installed.
        node.cluster.kubectl("delete", "customresourcedefinition", "delayqueues.delayq.dev")
