"""What every test may ask for: a real Redis of each selected flavour, a queue name of its own."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from tests import forking
from tests.remains import Remains
from tests.servers import FLAVOURS, PREFERRED, RedisServer, ServerMissingError, binary
from tests.topologies.kinds import MORE_CLUSTERS, TOPOLOGIES, flavour_of, start

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.topologies.kinds import Servers

# A shell that starts us in the background has us ignore Ctrl-C, and so would each process that a test starts. A handler
# is not inherited; what is ignored, is.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Python keeps bytecode, with any environment: otherwise each pytest worker compiles all tests again, and each
# process that a test starts all of delayq, which takes an operator longer than all else at its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

REDIS_TESTS = Path(__file__).parent / "redis"

# What a test is marked with that runs on more than one server in `make test`, too.
FOR_MORE = ("each_redis", "every_redis", "every_topology", "every_cluster")

# No deadline: on two shared cores a slow example says nothing. Function-scoped fixtures are fine where a test
# empties its server for each example.
settings.register_profile(
    "ci", deadline=None, max_examples=30, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.register_profile("full", settings.get_profile("ci"), max_examples=250)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--redis",
        default=PREFERRED,
        metavar="FLAVOURS",
        help=f"what to run tests/redis on: all, or some of {','.join((*FLAVOURS, *TOPOLOGIES))} ({PREFERRED}). "
        f"sample: all cases on {PREFERRED}, and on all what is marked {', '.join(FOR_MORE)}",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # not in each worker of xdist
        config.pluginmanager.register(Remains(config), "remains")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect in one worker after the other: the first compiles all tests, and the others read its bytecode."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    shared = session.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]  # not public
    lock = os.open(shared, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)
    finally:
        os.close(lock)


def pytest_sessionfinish() -> None:
    forking.end()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of an xdist_group in one worker: pytest 9.2 ignores the attribute that pytest-xdist 3.8 sets."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        suffix = "@" + "_".join(sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")}))
        if len(suffix) > 1 and not item.nodeid.endswith(suffix):
            item._id = type(item._id).parse(item.nodeid + suffix)
            assert item.nodeid.endswith(suffix), "pytest-xdist groups by what follows the @"


def selected(config: pytest.Config) -> list[str]:
    asked = config.getoption("--redis")
    kinds = [*FLAVOURS, *TOPOLOGIES] if asked in ("all", "sample") else asked.split(",")
    try:
        for kind in kinds:
            binary(flavour_of(kind))
    except ServerMissingError as error:
        raise pytest.UsageError(str(error)) from None
    return kinds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Everything in tests/redis runs on every selected flavour; elsewhere one is enough, unless marked.

    What asks for a shard or a client runs on every selected topology, too, unless it is about the one server it has.
    With --redis=sample, one server is enough for what is marked with none of FOR_MORE.
    """
    if "flavour" not in metafunc.fixturenames:
        return
    kinds, marked = selected(metafunc.config), metafunc.definition.get_closest_marker
    if metafunc.config.getoption("--redis") == "sample" and not any(map(marked, FOR_MORE)):
        kinds = [PREFERRED]
    flavours = [kind for kind in kinds if kind in FLAVOURS]
    everywhere = metafunc.definition.path.is_relative_to(REDIS_TESTS)
    if not everywhere and marked("every_redis") is None:
        flavours = [PREFERRED] if PREFERRED in flavours else flavours[:1]
    elif everywhere and marked("one_server") is None and _is_for_any(metafunc):
        flavours += [kind for kind in kinds if kind in TOPOLOGIES]
        if marked("every_cluster") and "cluster" in kinds:
            flavours += MORE_CLUSTERS
    metafunc.parametrize("flavour", flavours, scope="session")


def _is_for_any(metafunc: pytest.Metafunc) -> bool:
    asked = set(metafunc.fixturenames)
    if metafunc.definition.get_closest_marker("every_topology") is not None:
        return True
    return bool({"shard", "make"} & asked) and not {"aof_server", "fsyncing"} & asked


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[dict[str, Servers]]:
    """Servers that run, by flavour or topology: single ones paused between tests, and at most one topology.

    An idle server with a movable clock takes a twentieth of a core, a Cluster of them more, and cannot be paused.
    """
    servers: dict[str, Servers] = {}
    yield servers
    for server in servers.values():
        server.stop()


@pytest.fixture
def redis_server(
    flavour: str, shared_servers: dict[str, Servers], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    """An empty server with a movable clock and no persistence, shared in time: leave it running.

    Or what stands in for it: a Cluster, or servers with Sentinels, where the test is for those, too.
    """
    for other in shared_servers.keys() - {flavour, *FLAVOURS}:
        shared_servers.pop(other).stop()
    if flavour not in shared_servers:
        shared_servers[flavour] = start(flavour, tmp_path_factory.mktemp(f"redis-{flavour}"))
    server = shared_servers[flavour]
    if isinstance(server, RedisServer):
        server.resume()
    server.reset()
    yield server
    if isinstance(server, RedisServer):
        server.pause()


@pytest.fixture
def redis_url(redis_server: Servers) -> str:
    return redis_server.url


@pytest.fixture
def aof_server(flavour: str, tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own that keeps what it confirmed: kill, pause and restart it as you like.

    With everysec, what it confirms while a fsync is under way is not even written: a kill loses it.
    """
    always = {"appendfsync": "always"}
    server = RedisServer.start(flavour_of(flavour), dir=tmp_path / "redis", appendonly=True, config=always)
    yield server
    server.stop()


@pytest.fixture
def queue_name() -> str:
    return f"q-{uuid4().hex[:8]}"
