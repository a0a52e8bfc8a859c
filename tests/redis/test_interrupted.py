"""Signal handlers that raise within a call, or make one, and destructors that do: at any instruction of the client."""

from __future__ import annotations

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq import App, NewTask, SyncClient
from delayq.connection import Address

from tests.redis.injecting import interrupted, points
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis.injecting import Point
    from tests.servers import RedisServer
    from tests.topologies.kinds import Servers

DELAY_MS = 10**7
TASKS = [NewTask(n, delay_ms=DELAY_MS, task_id=f"t{n}") for n in range(12)]
CONNECTION = ["delayq.connection", "delayq.client.blocking"]
EVERYTHING = ["delayq", "redis.connection", "redis._parsers", "redis.retry"]

# A connect of redis-py that is interrupted leaves its socket to the garbage collector; nothing else may be left.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """Before another test, which does not ignore the warning about such a socket."""
    yield
    gc.collect()


class TooLate(Exception):
    """As of programs that limit time."""


def too_late() -> None:
    raise TooLate


def arrives(
    expected: type[Exception], call: Callable[[], object], point: Point, handler: Callable[[], None]
) -> bool:
    """Whether the exception of a handler ends the call, unless this call does not reach the instruction."""
    try:
        return not interrupted(call, point, handler)
    except expected:
        return True


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def narrow(url: str) -> Address:
    """One connection, so that the loss of one is noticed at once."""
    return replace(Address.from_url(url), max_connections=1, timeout_seconds=10.0)


def works(client: SyncClient, thread: ThreadPoolExecutor) -> None:
    """Each thread gets the answers to its own calls."""
    for where in (client.get, lambda task_id: thread.submit(client.get, task_id).result(30)):
        for task_id in ("t3", "t4"):
            view = where(task_id)
            assert view is not None
            assert view.id == task_id


def calls(client: SyncClient) -> dict[str, Callable[[], object]]:
    return {
        "get": lambda: client.get("t7"),
        "schedule": lambda: client.schedule(7, delay_ms=DELAY_MS, task_id="t7", if_exists="replace"),
        "schedule_many": lambda: client.schedule_many(
            TASKS * 50, if_exists="replace"
        ),  # two round trips at once
        "first": lambda: client.get("t7"),
    }


def chosen(client: SyncClient, name: str, modules: list[str], every: int) -> Iterator[Point]:
    """Warm up, and open the client before each point; for "first", anew."""
    call = calls(client)[name]
    client.schedule_many(TASKS, if_exists="replace")
    for _ in range(9):  # until Python has specialised the code
        call()
    if name == "first":
        client.close()
    client.open()
    for point in points(call, modules):
        if hash((point.at, point.code.co_firstlineno)) % every:
            continue
        if name == "first":
            client.close()
        client.open()
        yield point


@pytest.mark.slow
@pytest.mark.one_server
@pytest.mark.parametrize(
    "chosen_points",
    [
        ("get", CONNECTION, 9),
        ("schedule", EVERYTHING, 17),
        ("first", EVERYTHING, 17),
        ("schedule_many", CONNECTION, 37),
        *(
            pytest.param((name, EVERYTHING, step), marks=pytest.mark.full)
            for name, step in (("get", 1), ("schedule", 1), ("first", 1), ("schedule_many", 5))
        ),
    ],
)
def test_an_exception_at_any_instruction_arrives_and_later_calls_of_all_threads_work(
    redis_server: RedisServer,
    queue_name: str,
    thread: ThreadPoolExecutor,
    chosen_points: tuple[str, list[str], int],
) -> None:
    with SyncClient(narrow(redis_server.url), queue=queue_name) as client:
        for point in chosen(client, *chosen_points):
            assert arrives(TooLate, calls(client)[chosen_points[0]], point, too_late)
            works(client, thread)


@pytest.mark.slow
@pytest.mark.one_server
@pytest.mark.parametrize(
    "chosen_points",
    [("get", CONNECTION, 9), ("schedule", EVERYTHING, 17), ("first", EVERYTHING, 29)],
)
def test_a_call_at_any_instruction_of_another_neither_waits_for_it_nor_gets_its_answer(
    redis_server: RedisServer,
    queue_name: str,
    thread: ThreadPoolExecutor,
    chosen_points: tuple[str, list[str], int],
) -> None:
    """As a signal handler or a destructor makes."""
    with SyncClient(narrow(redis_server.url), queue=queue_name) as client:

        def within() -> None:
            view = client.get("t5")
            assert view is not None
            assert view.id == "t5"

        for point in chosen(client, *chosen_points):
            interrupted(calls(client)[chosen_points[0]], point, within)
            works(client, thread)


@pytest.mark.slow
@pytest.mark.every_topology
@pytest.mark.parametrize("handler", ["raises", "calls"])
def test_the_search_for_a_master_can_be_interrupted(
    redis_server: Servers, queue_name: str, thread: ThreadPoolExecutor, handler: str
) -> None:
    address = replace(narrow(redis_server.url), timeout_seconds=5.0)
    with SyncClient(address, queue=queue_name) as client:
        for point in chosen(client, "first", ["delayq.connection.blocking_discovery"], 5):
            with suppress(TooLate):
                interrupted(
                    calls(client)["first"],
                    point,
                    too_late if handler == "raises" else lambda: client.get("t5"),
                )
            works(client, thread)


def test_a_time_limit_by_timeout_error_is_not_taken_for_an_outage(
    redis_server: RedisServer, queue_name: str
) -> None:
    """Programs raise it from the handler of SIGALRM, and redis-py takes it for a timeout of its socket."""

    def limit() -> None:
        raise TimeoutError("job took too long")

    with SyncClient(narrow(redis_server.url), queue=queue_name) as client:
        read = ["delayq.connection.pool", "redis.connection", "redis._parsers"]
        for point in chosen(client, "get", read, 1):
            assert arrives(TimeoutError, calls(client)["get"], point, limit)


@pytest.mark.one_server
@pytest.mark.timeout(60)
def test_a_signal_handler_schedules_while_the_first_call_of_an_app_makes_its_client(
    redis_server: RedisServer, queue_name: str
) -> None:
    orders = document({"python": {"app": "web.tasks:app"}})
    app = App(replace(orders, metadata=replace(orders.metadata, name=queue_name)), url=redis_server.url)

    @app.task
    def pay(order: int) -> None: ...

    def schedule() -> None:
        pay.options(delay="1d").schedule_sync(1)

    def first() -> None:
        app.close()
        schedule()

    schedule()  # so that each call of first() closes a client
    for point in points(first, ["delayq.app.app"]):
        assert interrupted(first, point, schedule)
    app.close()


STRESS = """
import random, signal, sys, threading
from delayq import SyncClient

class TooLate(Exception): pass
raising = sys.argv[3] == "raise"
client = SyncClient(sys.argv[1], queue=sys.argv[2]).open()
for n in range(50):
    client.schedule(n, delay_ms=10**7, task_id=f"t{n}")
hits = 0

def handler(*_):
    global hits
    hits += 1
    if raising:
        raise TooLate
    client.schedule(hits, delay_ms=10**7)

def read():
    for n in range(200):
        assert client.get(f"t{n % 50}").id == f"t{n % 50}"

signal.signal(signal.SIGALRM, handler)
other = threading.Thread(target=read)
other.start()
draw = random.Random(3)
while hits < 100:
    n = draw.randrange(50)
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0001, 0.004))
        try:
            assert client.get(f"t{n}").id == f"t{n}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TooLate:
        assert client.get(f"t{n}").id == f"t{n}"
other.join()
"""


@pytest.mark.one_server
@pytest.mark.parametrize("handler", ["raise", "schedule"])
def test_real_signals_disturb_no_call(redis_server: RedisServer, queue_name: str, handler: str) -> None:
    command = [sys.executable, "-c", STRESS, redis_server.url, queue_name, handler]
    done = subprocess.run(command, timeout=100, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PACKING = """
import signal
from delayq.connection.round_trip import packed

class TooLate(Exception): pass

def handler(*_):
    raise TooLate

signal.signal(signal.SIGALRM, handler)
command, hits = ("EVALSHA", "0" * 40, *range(1000, 1400), 0.5, b"x"), 0
while hits < 100:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
        for _ in range(50):
            packed([command])
        signal.setitimer(signal.ITIMER_REAL, 0)
    except TooLate:
        hits += 1
"""


def test_a_signal_handler_that_raises_while_numbers_are_encoded_does_not_end_the_process() -> None:
    """hiredis takes the repr() of a number, in which Python calls signal handlers, for valid."""
    done = subprocess.run([sys.executable, "-c", PACKING], timeout=100, check=False)
    assert done.returncode == 0
