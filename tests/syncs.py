"""A Redis whose power can be cut: every fsync of its append-only file is seen; what came after the last is torn off.

The kernel asks us before each fsync and fdatasync of the server (a seccomp filter with user notification), and the
server waits until we answer. We note how long the file is and answer that it is on the disk: what survives is exactly
what the server confirmed survives. A real disk may keep more, never less.

Run as a program, this is the launcher: it sets the filter on itself, hands its listener over, and becomes the server.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

if __name__ != "__main__":  # the launcher needs nothing of ours, and runs anywhere
    from tests.servers import RedisServer

SECCOMP = {"x86_64": 317, "aarch64": 277}
SYNCS = {"x86_64": (74, 75), "aarch64": (82, 83)}
"""Numbers of seccomp(2), and of fsync(2) and fdatasync(2)."""

NO_NEW_PRIVILEGES, SET_FILTER, NEW_LISTENER = 38, 1, 1 << 3
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # of a BPF program
ALLOW, ASK = 0x7FFF0000, 0x7FC00000
RECEIVE, ANSWER = 0xC0502100, 0xC0182101  # ioctls of the listener
REQUEST, REPLY = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")


class Sync(NamedTuple):
    """One fsync: when it was asked for (monotonic seconds), and how much of the file it covers."""

    asked_at: float
    size: int


def launch(where: str, argv: list[str]) -> None:
    """Set the filter, send its listener to `where`, become `argv`."""
    libc = ctypes.CDLL(None, use_errno=True)
    machine = os.uname().machine
    fsync, fdatasync = SYNCS[machine]
    steps = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 2, 0, fsync), (JUMP_IF_EQUAL, 1, 0, fdatasync)]
    program = b"".join(
        struct.pack("=HBBI", *step) for step in (*steps, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ASK))
    )
    code = ctypes.create_string_buffer(program)
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener = libc.syscall(SECCOMP[machine], SET_FILTER, NEW_LISTENER, filter_)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp: no listener")
    with socket.socket(socket.AF_UNIX) as hand:
        hand.connect(where)
        socket.send_fds(hand, [b"listener"], [listener])
    os.execv(argv[0], argv)  # noqa: S606 -- the server itself, nothing to quote


@dataclass
class Witness:
    """Hears of every fsync of one server process, and answers."""

    syncs: list[Sync] = field(default_factory=list)

    def serve(self, door: socket.socket) -> None:
        """Until the process is gone."""
        with door:
            hand, _ = door.accept()
        with hand:
            _, [listener], _, _ = socket.recv_fds(hand, 16, 1)
        try:
            while True:
                self._answer(listener)
        except OSError:
            pass  # no server is left that could ask
        finally:
            os.close(listener)

    def _answer(self, listener: int) -> None:
        request = bytearray(REQUEST.size)
        fcntl.ioctl(listener, RECEIVE, request)
        id_, pid, _, _, _, _, fd, *_ = REQUEST.unpack(request)
        asked_at, path = time.monotonic(), Path(f"/proc/{pid}/fd/{fd}")
        is_log = path.readlink().name.endswith(".incr.aof")
        size = path.stat().st_size
        fcntl.ioctl(listener, ANSWER, REPLY.pack(id_, 0, 0, 0))
        if is_log:  # after the answer: a server that was killed meanwhile got no answer
            self.syncs.append(Sync(asked_at, size))


if __name__ == "__main__":
    launch(sys.argv[1], sys.argv[2:])
else:

    class Mains(RedisServer):
        """A RedisServer on a plug that can be pulled."""

        witness: Witness

        def launch(self, ready: str = "Ready to accept connections") -> None:
            """Start it with a witness of its own."""
            self._door = self.dir / "door"
            self._door.unlink(missing_ok=True)
            door = socket.socket(socket.AF_UNIX)
            door.bind(str(self._door))
            door.listen(1)
            self.witness = Witness()
            self._hearing = threading.Thread(target=self.witness.serve, args=(door,), daemon=True)
            self._hearing.start()
            super().launch(ready)

        def _argv(self) -> list[str]:
            return [sys.executable, str(Path(__file__)), str(self._door), *super()._argv()]

        def cut_power(self) -> float:
            """Kill it, and tear off of its log what no fsync covers; returns until when no confirmed write is missing.

            That is when the last sync but one was asked for. While a sync waits for its turn, Redis answers and writes
            nothing: what the last one covers was written before, but after the one before had ended.
            """
            if self.process.alive:
                self.kill()
            self._hearing.join()  # it may have answered, and not noted it yet
            last = self.witness.syncs[-1] if self.witness.syncs else Sync(0.0, 0)
            for log in (self.dir / "appendonlydir").glob("*.incr.aof"):
                os.truncate(log, last.size)
            return self.witness.syncs[-2].asked_at if len(self.witness.syncs) > 1 else 0.0
