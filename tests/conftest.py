"""What every test may ask for: a real Redis of each selected flavour, a queue name of its own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import FLAVOURS, PREFERRED, RedisServer, ServerMissingError, binary

if TYPE_CHECKING:
    from collections.abc import Iterator

# A shell that starts us in the background has us ignore Ctrl-C, and so would each process that a test starts. A handler
# is not inherited; what is ignored, is.
signal.signal(signal.SIGINT, signal.default_int_handler)

REDIS_TESTS = Path(__file__).parent / "redis"

# No deadline: on two shared cores a slow example says nothing. Function-scoped fixtures are fine where a test
# empties its server for each example.
settings.register_profile("ci", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--redis",
        default=PREFERRED,
        metavar="FLAVOURS",
        help=f"Redis servers to run tests/redis on: all, or some of {','.join(FLAVOURS)} ({PREFERRED})",
    )


def selected_flavours(config: pytest.Config) -> list[str]:
    asked = config.getoption("--redis")
    flavours = list(FLAVOURS) if asked == "all" else asked.split(",")
    try:
        for flavour in flavours:
            binary(flavour)
    except ServerMissingError as error:
        raise pytest.UsageError(str(error)) from None
    return flavours


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Everything in tests/redis runs on every selected flavour; elsewhere one is enough, unless marked."""
    if "flavour" not in metafunc.fixturenames:
        return
    flavours = selected_flavours(metafunc.config)
    everywhere = metafunc.definition.path.is_relative_to(REDIS_TESTS)
    if not everywhere and metafunc.definition.get_closest_marker("every_redis") is None:
        flavours = [PREFERRED] if PREFERRED in flavours else flavours[:1]
    metafunc.parametrize("flavour", flavours, scope="session")


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[dict[str, RedisServer]]:
    """Servers started so far, by flavour: a pytest worker starts each at most once."""
    servers: dict[str, RedisServer] = {}
    yield servers
    for server in servers.values():
        server.stop()


@pytest.fixture
def redis_server(
    flavour: str, shared_servers: dict[str, RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> RedisServer:
    """An empty server with a movable clock and no persistence, shared in time: leave it running."""
    if flavour not in shared_servers:
        directory = tmp_path_factory.mktemp(f"redis-{flavour}")
        shared_servers[flavour] = RedisServer.start(flavour, dir=directory, movable_clock=True)
    shared_servers[flavour].reset()
    return shared_servers[flavour]


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def aof_server(flavour: str, tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own with AOF on: kill, pause and restart it as you like."""
    server = RedisServer.start(flavour, dir=tmp_path / "redis", appendonly=True)
    yield server
    server.stop()


@pytest.fixture
def queue_name() -> str:
    return f"q-{uuid4().hex[:8]}"
