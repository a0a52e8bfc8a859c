"""Tests of task code: a queue of its own for each test, on an embedded Redis, with time that a test moves.

With pytest, the fixture `delayq_queue` makes one (plugin.py).
"""

from delayq.testing.queue import Queue, Run, ScheduledTask
from delayq.testing.server import Server

__all__ = ["Queue", "Run", "ScheduledTask", "Server"]
