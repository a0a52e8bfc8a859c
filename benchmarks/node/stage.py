"""A node with the chart on it, and a namespace with a Redis: what tests have, for a benchmark."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.cluster.harness.resources import make_namespace
from tests.node.harness import leftovers, requirements
from tests.node.harness.images import built
from tests.node.harness.node import Node
from tests.node.release import Release
from tests.node.world import NodeWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAMESPACE: Final = "bench"


@contextmanager
def stage(logs: Path, say: Callable[[str], None]) -> Iterator[NodeWorld]:
    """Start all of it, and stop it at the end."""
    requirements.check()
    node = Node.start(leftovers.new_run_dir(), logs=logs, say=say)
    try:
        say("loading the images, installing the chart")
        images = {archive.stem: node.load_image(archive)[0] for archive in built()}
        release = Release.install(node, images)
        make_namespace(node.cluster, NAMESPACE)
        redis = node.redis(NAMESPACE)
        with redis.client() as connection:
            yield NodeWorld(node.cluster, release, NAMESPACE, node, redis, connection)
    finally:
        node.stop()
