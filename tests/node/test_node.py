"""The node that the other tests stand on is a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.node.harness.node import Node


def test_the_node_is_ready(node: Node) -> None:
    assert node.ready
