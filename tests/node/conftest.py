"""What tests on a real node ask for: one node for the whole session, a namespace for each test."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.node.harness import leftovers, requirements
from tests.node.harness.images import built
from tests.node.harness.node import Node, tell
from tests.node.release import Release
from tests.node.world import NodeWorld

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The node; leave it as you found it. Its logs stay as long as pytest keeps them."""
    if reason := requirements.hopeless():
        pytest.skip(reason)
    # A SIGTERM would end us without `stop()`: let it do what Ctrl-C does.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            tell(line)

    node = Node.start(leftovers.new_run_dir(), logs=tmp_path_factory.mktemp("node"), say=say)
    yield node
    node.stop()
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def images(node: Node) -> dict[str, str]:
    """The project's own images, on the node: what tools/build-images calls them → their names for pods."""
    return {archive.stem: node.load_image(archive)[0] for archive in built()}


@pytest.fixture(scope="session")
def operator(node: Node, images: dict[str, str]) -> Release:
    """The chart, installed: its operator serves every namespace. It goes with the node."""
    return Release.install(node, images)


@pytest.fixture
def world(node: Node, operator: Release) -> Iterator[NodeWorld]:
    """A namespace of the test's own with a Redis, where pods handle tasks and write a ledger."""
    with NodeWorld.made(node, operator) as world:
        yield world
