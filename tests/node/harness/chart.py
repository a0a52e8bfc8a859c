"""Our chart on a node, with the images of this checkout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.cluster.harness.binaries import ROOT

if TYPE_CHECKING:
    from tests.node.harness.node import Node
    from tests.node.harness.redis import NodeRedis

CHART: Final = ROOT / "charts" / "delayq"
RELEASE: Final = "delayq"
# Their tags are the chart's own.
IMAGES: Final = (
    "image.repository=localhost/delayq-operator",
    "worker.image.repository=localhost/delayq-worker",
)


def install(node: Node, namespace: str, redis: NodeRedis, *args: str) -> None:
    """Install it into a namespace that is there, with a Redis for `helm test`; ready when the operator works."""
    values = (*IMAGES, f"test.redis.standalone.host={redis.host}")
    node.cluster.helm(
        *(
            "upgrade",
            "--install",
            RELEASE,
            str(CHART),
            f"--namespace={namespace}",
            "--wait",
            "--timeout=100s",
        ),
        *(word for value in values for word in ("--set", value)),
        *args,
    )


def uninstall(node: Node, namespace: str) -> None:
    node.cluster.helm("uninstall", RELEASE, f"--namespace={namespace}", "--wait", "--timeout=100s")
