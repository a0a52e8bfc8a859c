"""Connections that outlast a fork, another event loop, or the demotion of their master."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient
from delayq.connection import Address, AsyncConnection, SyncConnection
from delayq.errors import Unavailable
from delayq.protocol.commands import Commands

from tests.redis.proxy import proxy_to

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import RedisServer


def ended_well(script: str, *arguments: str) -> None:
    """Run a script in a process of its own: pytest has threads, which do not survive a fork."""
    command = [sys.executable, "-c", script, *arguments]
    assert subprocess.run(command, timeout=300, check=False).returncode == 0


def test_every_connection_to_a_demoted_master_is_left_at_its_first_refusal(
    redis_server: RedisServer, aof_server: RedisServer, queue_name: str
) -> None:
    call = Commands(queue_name).elect(0, "me", "", 9000)
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


FORKS = """
import os, signal, socket, sys, threading
from dataclasses import replace
from delayq.protocol.commands import Commands
from delayq.connection import Address, SyncConnection
from delayq.errors import Unavailable

call = Commands(sys.argv[2]).counts(0)

def forked(in_child, in_parent):
    child = os.fork()
    if not child:
        signal.alarm(60)
        in_child()
        os._exit(0)
    in_parent()
    assert os.waitpid(child, 0)[1] == 0

def used():
    for _ in range(20):
        connection.run([call])

connection = SyncConnection(replace(Address.from_url(sys.argv[1]), max_connections=1))
forked(used, used)
forked(used, used)  # now with a connection of the parent

# while a thread asks for a master, and waits for the answer
silent = socket.create_server(("127.0.0.1", 0))
url = f"redis+sentinel://127.0.0.1:{silent.getsockname()[1]}/mymaster"
asking = SyncConnection(replace(Address.from_url(url), timeout_seconds=5.0))

def asked():
    try:
        asking.one(call)
    except Unavailable:
        return
    raise SystemExit(1)

thread = threading.Thread(target=asked)
thread.start()
silent.accept()[0].recv(1)
forked(asked, thread.join)
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
    where = sys.argv[1:]
    schedule(*where)
    processes = map(multiprocessing.get_context, ("fork", "fork", "spawn"))
    children = [each.Process(target=schedule, args=where) for each in processes]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
"""


@pytest.mark.one_server
def test_processes_that_a_client_starts_draw_ids_of_their_own(
    redis_server: RedisServer, queue_name: str, tmp_path: Path
) -> None:
    """An id that two processes use is refused once, or under an SQL guard done once, though there are two tasks."""
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    command = [sys.executable, str(script), redis_server.url, queue_name]
    assert subprocess.run(command, timeout=300, check=False).returncode == 0
    with SyncClient(redis_server.url, queue=queue_name) as client:
        assert client.counts().waiting == 4 * 200


ASYNC = """
import asyncio, os, signal, sys
from delayq import Client

client = Client(sys.argv[1], queue=sys.argv[2])

async def schedule():
    return (await client.schedule({}, delay_ms=60_000)).outcome

async def anew():
    await client.open()
    return await schedule()

def refused(why):
    try:
        asyncio.run(schedule())
    except RuntimeError as error:
        assert why in str(error)
    else:
        os._exit(1)

assert asyncio.run(anew()) == "created"
refused("opened in another event loop: call open()")
for _ in range(20):
    assert asyncio.run(anew()) == "created"

loop = asyncio.new_event_loop()
loop.run_until_complete(anew())
child = os.fork()
if not child:
    signal.alarm(60)
    refused("opened before a fork: call open()")
    assert asyncio.run(anew()) == "created"
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
loop.run_until_complete(schedule())
loop.run_until_complete(client.close())
"""


@pytest.mark.one_server
def test_an_asynchronous_client_is_opened_anew_in_another_event_loop_or_process(
    redis_server: RedisServer, queue_name: str
) -> None:
    """No answer would arrive there, so a call would be sent twice, and a task due at once could run twice."""
    ended_well(ASYNC, redis_server.url, queue_name)


async def test_a_reply_that_came_while_the_event_loop_was_blocked_is_read(redis_url: str) -> None:
    """Handlers that block are no outage of Redis."""
    connection = AsyncConnection(replace(Address.from_url(redis_url), timeout_seconds=0.2))
    call = Commands("orders", shards=1).counts(0)
    await connection.one(call)
    answering = asyncio.create_task(connection.one(call))
    for _ in range(5):  # until it is sent
        await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251 -- as a handler might
    assert (await answering).waiting == 0
    assert connection.connects == 1
    await connection.close()
