"""Runs code at any bytecode instruction of a call, as a signal handler or a destructor may."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType


class Point(NamedTuple):
    """An instruction: where the handler of a signal may run."""

    code: CodeType
    at: int

    def __str__(self) -> str:
        lines = [line for first, last, line in self.code.co_lines() if first <= self.at < last]
        return f"{self.code.co_filename.rpartition('/')[2]}:{lines[0]} {self.code.co_name}+{self.at}"


def points(call: Callable[[], object], modules: Sequence[str]) -> list[Point]:
    """Return each instruction of these modules that a call executes, once."""
    found: dict[Point, None] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 -- as sys.settrace wants it
        if event == "call" and not _of(frame, modules):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not _in_destructor(frame):
            found[Point(frame.f_code, frame.f_lasti)] = None
        return trace

    _traced(call, trace)
    return list(found)


def interrupted(call: Callable[[], object], point: Point, handler: Callable[[], object]) -> bool:
    """Make a call, and run a handler when it reaches an instruction; returns whether it did, unless one raises."""
    reached = False

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 -- as above
        nonlocal reached
        if frame.f_code is not point.code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti == point.at and not _in_destructor(frame):
            sys.settrace(None)
            frame.f_trace, reached = None, True
            handler()
            return None
        return trace

    _traced(call, trace)
    return reached


def _traced(call: Callable[[], object], trace: Callable[[FrameType, str, object], Any]) -> None:
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def _of(frame: FrameType, modules: Sequence[str]) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(tuple(modules))


def _in_destructor(frame: FrameType | None) -> bool:
    """Whether Python would only print the exception, from any source."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
