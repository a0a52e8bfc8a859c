"""The images that tools/build-images left, and containers of them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.images.archive import BUILT, Image
from tests.images.container import Container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.servers import RedisServer

OURS = ("operator", "worker", "hello", "shop")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where images cannot be built, say so; where they only were not built, fail."""
    if os.geteuid() == 0:
        return
    for item in items:
        if "tests/images/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="images are built and run by root only"))


@pytest.fixture(scope="session")
def images() -> dict[str, Image]:
    assert list(BUILT.glob(".ready-*")), f"no images in {BUILT}: run `make images`"
    # Not by the link, which leads elsewhere as soon as another checkout is built.
    return {path.stem: Image.read(path) for path in BUILT.resolve().glob("*.tar")}


@pytest.fixture(params=OURS, scope="session")
def image(request: pytest.FixtureRequest, images: dict[str, Image]) -> Image:
    return images[request.param]


@pytest.fixture(scope="module")
def unpacked(
    images: dict[str, Image], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Container]]:
    """A container of an image by its name; unpacked once, and removed: they are large."""
    folder, made = tmp_path_factory.mktemp("images"), dict[str, Container]()

    def container(name: str) -> Container:
        if name not in made:
            images[name].unpack(folder / name)
            made[name] = Container(images[name], folder / name)
        return made[name]

    yield container
    shutil.rmtree(folder)


@pytest.fixture
def document(tmp_path: Path, redis_server: RedisServer) -> Callable[..., Path]:
    """A DelayQueue document for a handler, on the test's Redis."""

    def write(handler: str, **more: str) -> Path:
        path = tmp_path / "queue.yaml"
        redis = f"{{standalone: {{host: 127.0.0.1, port: {redis_server.port}}}}}"
        lines = [f"  {name}: {value}" for name, value in {"redis": redis, "handler": handler, **more}.items()]
        head = ["apiVersion: delayq.dev/v1alpha1", "kind: DelayQueue", "metadata: {name: orders}", "spec:"]
        path.write_text("\n".join([*head, *lines, ""]))
        return path

    return write
