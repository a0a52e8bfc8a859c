"""Blocking connections: how many there are, what a demoted master costs them, and what a fork leaves behind."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient
from delayq.connection import Address, SyncConnection
from delayq.connection.deadline import Deadline
from delayq.connection.pool import Pool
from delayq.errors import Unavailable
from delayq.protocol.commands import Commands

from tests.redis.proxy import proxy_to

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import RedisServer


def ended_well(script: str, *arguments: str) -> None:
    """Run a script in a process of its own: pytest has threads, which do not survive a fork."""
    command = [sys.executable, "-c", script, *arguments]
    assert subprocess.run(command, timeout=120, check=False).returncode == 0


def test_every_connection_to_a_demoted_master_is_left_at_its_first_refusal(
    redis_server: RedisServer, aof_server: RedisServer, queue_name: str
) -> None:
    call = Commands(queue_name).elect(0, "me", 9000)
    with (
        proxy_to(aof_server.port) as proxy,
        closing(SyncConnection(Address.from_url(proxy.url))) as connection,
    ):
        for ticket in [connection.start([call]) for _ in range(3)]:
            connection.finish(ticket)
        with aof_server.client() as old:
            old.replicaof("127.0.0.1", redis_server.port)
        with pytest.raises(Unavailable, match="READONLY"):
            connection.run([call])
        proxy.target = redis_server.port
        for ticket in [connection.start([call]) for _ in range(3)]:
            [answer] = connection.finish(ticket)
            assert not isinstance(answer, Unavailable)


def test_a_thread_that_holds_a_connection_does_not_wait_for_another(
    redis_server: RedisServer, queue_name: str
) -> None:
    """As many threads as there are connections would wait for each other, in front of a Redis that is well."""
    call, both = Commands(queue_name).counts(0), Barrier(2, timeout=30)

    def work() -> None:
        began = connection.start([call])
        both.wait()
        assert not isinstance(connection.answers([call])[0], Exception)
        connection.finish(began)

    address = replace(Address.from_url(redis_server.url), max_connections=2)
    with closing(SyncConnection(address)) as connection, ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(work), threads.submit(work)]:
            each.result()


FORKS = """
import os, sys
from dataclasses import replace
from delayq.protocol.commands import Commands
from delayq.connection import Address, SyncConnection

connection = SyncConnection(replace(Address.from_url(sys.argv[1]), max_connections=1))
call = Commands(sys.argv[2]).counts(0)
connection.run([call])
child = os.fork()
for _ in range(20):
    connection.run([call])
if child:
    assert os.waitpid(child, 0)[1] == 0
    connection.run([call])
connection.close()
"""


def test_a_forked_child_connects_anew_and_leaves_the_parents_connection_alone(
    aof_server: RedisServer, queue_name: str
) -> None:
    ended_well(FORKS, aof_server.url, queue_name)


STARTS = """
import multiprocessing, sys
from delayq import NewTask, SyncClient

def schedule(url, queue):
    with SyncClient(url, queue=queue) as client:
        for n in range(100):
            client.schedule(n, delay_ms=60_000)
        client.schedule_many(NewTask(n, delay_ms=60_000) for n in range(100))

if __name__ == "__main__":
    how, url, queue = sys.argv[1:]
    schedule(url, queue)
    processes = multiprocessing.get_context(how)
    children = [processes.Process(target=schedule, args=(url, queue)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
@pytest.mark.one_server
def test_processes_that_a_client_starts_draw_ids_of_their_own(
    redis_server: RedisServer, queue_name: str, how: str, tmp_path: Path
) -> None:
    """An id that two processes use is refused once, or under an SQL guard done once, though there are two tasks."""
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    done = subprocess.run(
        [sys.executable, script, how, redis_server.url, queue_name], timeout=120, check=False
    )
    assert done.returncode == 0
    with SyncClient(redis_server.url, queue=queue_name) as client:
        assert client.counts().waiting == 5 * 200


FORKS_ASYNC = """
import asyncio, os, signal, sys
from delayq import Client

client = Client(sys.argv[1], queue=sys.argv[2])
loop = asyncio.new_event_loop()
loop.run_until_complete(client.open())
loop.run_until_complete(client.counts())
child = os.fork()
if not child:
    signal.alarm(60)
    try:
        asyncio.run(client.counts())
    except RuntimeError as error:
        assert "opened before a fork: call open()" in str(error)
    else:
        os._exit(1)

    async def anew():
        async with client:
            await client.counts()

    asyncio.run(anew())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
loop.run_until_complete(client.counts())
loop.run_until_complete(client.close())
"""


@pytest.mark.one_server
def test_a_forked_child_opens_an_asynchronous_client_anew(redis_server: RedisServer, queue_name: str) -> None:
    ended_well(FORKS_ASYNC, redis_server.url, queue_name)


LOOPS = """
import asyncio, sys
from delayq import Client

client = Client(sys.argv[1], queue=sys.argv[2])

async def schedule():
    return (await client.schedule({}, delay_ms=60_000)).outcome

async def anew():
    await client.open()
    return await schedule()

assert asyncio.run(anew()) == "created"
try:
    asyncio.run(schedule())
except RuntimeError as error:
    assert "opened in another event loop: call open()" in str(error)
else:
    raise SystemExit(1)
for _ in range(20):
    assert asyncio.run(anew()) == "created"
asyncio.run(client.close())
"""


@pytest.mark.one_server
def test_an_asynchronous_client_is_not_used_in_another_event_loop(
    redis_server: RedisServer, queue_name: str
) -> None:
    """No answer would arrive there, so a call would be sent twice, and a task due at once could run twice."""
    ended_well(LOOPS, redis_server.url, queue_name)


FORKS_MEANWHILE = """
import os, signal, socket, threading
from dataclasses import replace
from delayq.protocol.commands import Commands
from delayq.connection import Address, SyncConnection
from delayq.errors import Unavailable

silent = socket.create_server(("127.0.0.1", 0))
url = f"redis+sentinel://127.0.0.1:{silent.getsockname()[1]}/mymaster"
connection = SyncConnection(replace(Address.from_url(url), timeout_seconds=5.0))

def asked():
    try:
        connection.one(Commands("orders").counts(0))
    except Unavailable:
        return
    raise SystemExit(1)

thread = threading.Thread(target=asked)
thread.start()
silent.accept()[0].recv(1)  # it asks, and will wait for the answer
child = os.fork()
if not child:
    signal.alarm(60)
    asked()
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_that_is_forked_while_a_thread_asks_for_a_master_asks_for_itself() -> None:
    ended_well(FORKS_MEANWHILE)


def test_there_are_never_more_connections_than_allowed_and_each_is_given_back(
    aof_server: RedisServer,
) -> None:
    pool, patient = Pool(replace(Address.from_url(aof_server.url), max_connections=2)), Deadline(60)
    first, second = pool.wait(patient), pool.wait(patient)
    assert pool.take(patient) is None
    with pytest.raises(Unavailable, match="no free connection within"):
        pool.wait(Deadline(0.05))
    more = pool.more(patient)
    more.write([("PING",)], patient)
    assert more.read(1, patient) == [b"PONG"]
    pool.give(more)
    assert pool.take(patient) is None  # what was beyond the bound does not widen it
    pool.give(first)
    assert pool.take(patient) is first
    pool.drop()
    pool.give(first)
    pool.give(second)
    assert {pool.wait(patient), pool.wait(patient)} == {first, second}
    pool.give(first)
    pool.give(second)
    pool.drop()
