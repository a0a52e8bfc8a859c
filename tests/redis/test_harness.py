"""The Redis harness itself: a test that fails here makes every other answer worthless."""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes import Gone, Process
from tests.servers import Clock, RedisServer

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
LUA_NOW_MS = "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)"


def clock_of(server: RedisServer) -> Clock:
    assert server.clock is not None
    return server.clock


@pytest.mark.parametrize("shift_ms", [HOUR_MS, -HOUR_MS, 1, -1500])
def test_a_script_sees_the_clock_move_both_ways(redis_server: RedisServer, shift_ms: int) -> None:
    with redis_server.client() as client:
        before_ms = client.eval(LUA_NOW_MS, 0)
        clock_of(redis_server).shift_ms(shift_ms)
        after_ms = client.eval(LUA_NOW_MS, 0)
    assert after_ms - before_ms == pytest.approx(shift_ms, abs=500)


def test_keys_expire_by_the_moved_clock(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.set("key", "value", px=HOUR_MS)
        clock_of(redis_server).shift_ms(HOUR_MS - 10_000)
        assert client.get("key") == "value"
        clock_of(redis_server).shift_ms(20_000)
        assert client.get("key") is None


def test_each_test_begins_with_an_empty_server_that_is_on_time(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        assert client.dbsize() == 0
    assert clock_of(redis_server).offset_ms == 0


def test_acknowledged_writes_survive_sigkill_and_restart(aof_server: RedisServer) -> None:
    with aof_server.client() as client:
        client.mset({f"key-{n}": n for n in range(1000)})
        aof_server.kill()
        aof_server.restart()
        assert client.dbsize() == 1000


def test_a_restart_keeps_port_and_clock(flavour: str, tmp_path: Path) -> None:
    server = RedisServer.start(flavour, dir=tmp_path, movable_clock=True)
    try:
        clock_of(server).shift_ms(HOUR_MS)
        before_ms, port = server.now_ms(), server.port
        server.restart()
        assert server.port == port
        assert 0 <= server.now_ms() - before_ms < 10_000
    finally:
        server.stop()


def test_a_paused_server_answers_late_and_not_never(aof_server: RedisServer) -> None:
    with aof_server.client() as client, ThreadPoolExecutor(1) as thread:
        client.ping()
        aof_server.pause()
        answer = thread.submit(client.ping)
        with pytest.raises(TimeoutError):
            answer.result(0.2)
        aof_server.resume()
        assert answer.result(10)


def test_servers_side_by_side_share_nothing(flavour: str, tmp_path: Path) -> None:
    one = RedisServer.start(flavour, dir=tmp_path / "one", movable_clock=True)
    two = RedisServer.start(flavour, dir=tmp_path / "two", config={"maxmemory": "50mb"})
    try:
        clock_of(one).shift_ms(HOUR_MS)
        assert one.now_ms() - two.now_ms() == pytest.approx(HOUR_MS, abs=1000)
        with two.client() as client:
            assert client.config_get("maxmemory") == {"maxmemory": str(50 * 1024 * 1024)}
    finally:
        one.stop()
        two.stop()


def test_a_taken_port_is_given_up_for_another(
    flavour: str, tmp_path: Path, aof_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([aof_server.port, aof_server.port + 1, aof_server.port + 2, aof_server.port + 3])
    monkeypatch.setattr("tests.servers.random.choice", lambda _: next(ports))
    server = RedisServer.start(flavour, dir=tmp_path / "other")
    try:
        assert server.port != aof_server.port
    finally:
        server.stop()


def test_a_server_that_refuses_its_configuration_says_why(flavour: str, tmp_path: Path) -> None:
    with pytest.raises(Gone, match="no-such-option"):
        RedisServer.start(flavour, dir=tmp_path, config={"no-such-option": "1"})


START_AND_HANG = """
import sys, threading
from pathlib import Path
from tests.servers import RedisServer
print("port", RedisServer.start(sys.argv[1], dir=Path(sys.argv[2])).port)
threading.Event().wait()
"""


def test_a_server_dies_with_whoever_started_it(flavour: str, tmp_path: Path) -> None:
    starter = Process.start(sys.executable, "-c", START_AND_HANG, flavour, str(tmp_path), cwd=ROOT)
    port = int(starter.wait_line("port").split()[1])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"
        starter.kill()
        assert connection.recv(1) == b""


def test_a_process_is_awaited_by_what_it_says() -> None:
    process = Process.start("sh", "-c", "echo ready; exec sleep 60")
    assert process.wait_line("ready") == "ready"
    with pytest.raises(Gone, match="never said 'done'"):
        process.wait_line("done", timeout_s=0.1)
    assert process.kill() == -9
