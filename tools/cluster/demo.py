"""What `make cluster` puts on a node, our chart, a Redis and the queue of examples/hello; and what it says to try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.cluster.harness.binaries import KUBERNETES, ROOT
from tests.cluster.harness.resources import make_namespace
from tests.node.harness.images import built

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node.harness.node import Node

NAMESPACE: Final = "shop"
SYSTEM: Final = "delayq-system"
QUEUE: Final = "orders"
DOCUMENT: Final = ROOT / "examples" / "hello" / "cluster.yaml"
CHART, RELEASE = ROOT / "charts" / "delayq", "delayq"
IMAGES: Final = tuple(
    f"{value}=localhost/delayq-{name}"
    for value, name in (("image.repository", "operator"), ("worker.image.repository", "worker"))
)
"""Their tags are the chart's own."""
REDIS: Final = 100
"""Its place among the addresses of Services."""


def install(node: Node) -> None:
    node.say("loading the images")
    images = {archive.stem: node.load_image(archive)[0] for archive in built()}
    for namespace in (NAMESPACE, SYSTEM):
        make_namespace(node.cluster, namespace)
    node.say("starting Redis")
    redis = node.redis(NAMESPACE, host=str(node.block.services[REDIS]))
    node.say("installing the chart")
    values = (*IMAGES, f"test.redis.standalone.host={redis.host}")
    install = (
        "upgrade",
        "--install",
        RELEASE,
        str(CHART),
        f"--namespace={SYSTEM}",
        "--wait",
        "--timeout=100s",
    )
    node.cluster.helm(*install, *(word for value in values for word in ("--set", value)))
    node.say(f"applying {DOCUMENT.relative_to(ROOT)}")
    document = DOCUMENT.read_text().replace("localhost/delayq-hello:0.9.0", images["hello"])
    node.cluster.kubectl("apply", "--filename=-", input=document)
    ready = ("--for=condition=Ready", f"delayqueue/{QUEUE}", f"--namespace={NAMESPACE}", "--timeout=90s")
    node.cluster.kubectl("wait", *ready)


def hints(kubeconfig: Path) -> str:
    tools = f"{KUBERNETES}:{ROOT / '.venv' / 'bin'}"
    return f"""
A Kubernetes of one node is up, with the operator, a Redis, and the queue `{QUEUE}`. The queue has one worker at first,
which shows whether workers start at all, and how long that takes. About half a minute to a minute later it has none,
until something falls due. The namespace is `{NAMESPACE}`, as this KUBECONFIG says. In this shell, and in a second one:

  export KUBECONFIG={kubeconfig} KUBECACHEDIR={kubeconfig.parent / "kubectl"}
  export PATH={tools}:$PATH
  kubectl get dq                        # the queue; its numbers are up to 10 s old
  kubectl get pods --watch              # its pods, as they come and go

1,000 tasks that fall due at one instant, a minute from now; the workers are there before:

  for n in $(seq 1000); do echo "{{\\"payload\\": {{\\"order\\": $n}}, \\"in\\": \\"60s\\"}}"; done >tasks.jsonl
  kubectl dq schedule {QUEUE} --many tasks.jsonl
  kubectl dq forecast {QUEUE}             # what falls due when, and the workers that it takes
  kubectl dq top {QUEUE}                  # live, from Redis itself; Ctrl-C ends it
  kubectl dq status {QUEUE}               # and why there are as many workers as there are
  kubectl logs -l delayq.dev/queue={QUEUE} --prefix --tail=3

More: docs/tutorials/cluster.md. When you are done: make cluster-down
"""
