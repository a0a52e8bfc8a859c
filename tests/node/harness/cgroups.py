"""The cgroup that a node's containers live below, on cgroup v1 and v2, and which host processes are in it."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MOUNTS: Final = Path("/sys/fs/cgroup")
NEEDED: Final = ("cpu", "cpuacct", "cpuset", "memory", "pids")
HAND_ON: Final = """{cgroup} cannot hand {controller} on to what is below it: {error}
In a container with cgroups of its own, move the container's processes one down:
  mkdir /sys/fs/cgroup/init && xargs -rn1 </sys/fs/cgroup/cgroup.procs >/sys/fs/cgroup/init/cgroup.procs"""
EMPTY_SECONDS: Final = 60.0


class CgroupError(Exception):
    """Limits cannot be set on this machine; the message says what would let us."""


def unified() -> bool:
    """Whether it is cgroup v2 alone; with both there, the controllers are those of v1."""
    return (MOUNTS / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Where cgroups are made: one place on v2, one for each controller on v1, links to the same left out."""
    if unified():
        return [MOUNTS]
    return sorted(
        each for each in MOUNTS.iterdir() if each.is_dir() and not each.is_symlink() and os.path.ismount(each)
    )


def hopeless() -> str | None:
    """Why this machine has none that a node could use; None when it has."""
    if not unified() and (missing := [each for each in NEEDED if not (MOUNTS / each / "tasks").exists()]):
        return f"a node takes cgroups, and {', '.join(missing)} is not mounted below {MOUNTS}"
    if not all(os.access(hierarchy, os.W_OK) for hierarchy in hierarchies()):
        return f"a node takes cgroups, and {MOUNTS} is read-only: a container needs --privileged"
    return None


def make(name: str) -> None:
    """Make a cgroup at the top, with all controllers that the kubelet wants."""
    if unified():
        _let_children_have(MOUNTS)
    try:
        for hierarchy in hierarchies():
            (hierarchy / name).mkdir(exist_ok=True)
            _copy_cpuset(hierarchy, name)
    except OSError as error:
        raise CgroupError(f"cannot make a cgroup: {error}") from error
    if unified():
        _let_children_have(MOUNTS / name)


def _let_children_have(cgroup: Path) -> None:
    for controller in (cgroup / "cgroup.controllers").read_text().split():
        try:
            (cgroup / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            if controller in NEEDED:
                raise CgroupError(
                    HAND_ON.format(cgroup=cgroup, controller=controller, error=error)
                ) from error


def _copy_cpuset(hierarchy: Path, name: str) -> None:
    """On v1, a new cpuset has no CPU, and accepts no process."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        own = hierarchy / name / file
        if not unified() and own.exists() and not own.read_text().strip():
            own.write_text((hierarchy / file).read_text())


def processes(name: str) -> set[int]:
    """Processes anywhere below a cgroup, by their numbers on this machine."""
    return {
        pid
        for hierarchy in hierarchies()
        for cgroup in _from(hierarchy / name)
        for pid in _processes_in(cgroup)
    }


def of_container(name: str, container_id: str) -> set[int]:
    """Processes of one container of a node."""
    top = MOUNTS if unified() else MOUNTS / "memory"
    return {
        pid
        for cgroup in _from(top / name)
        if container_id in cgroup.relative_to(top).parts
        for pid in _processes_in(cgroup)
    }


def _from(top: Path) -> Iterator[Path]:
    """Yield a cgroup and all below it; what goes meanwhile is passed over, where pathlib's glob would raise."""
    return (Path(directory) for directory, _, _ in os.walk(top))


def _processes_in(cgroup: Path) -> set[int]:
    try:
        return {int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()}
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):  # it has gone, before or after it was opened
            return set()
        raise


def remove(name: str) -> None:
    """Remove a cgroup whose processes are dead or dying."""
    deadline = time.monotonic() + EMPTY_SECONDS
    for hierarchy in hierarchies():
        while (top := hierarchy / name).exists():
            try:
                _remove_tree(top)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)  # the kernel is not done with the last of them


def _remove_tree(top: Path) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        Path(directory).rmdir()


def existing(prefix: str) -> set[str]:
    """Names at the top that begin with this."""
    return {each.name for hierarchy in hierarchies() for each in hierarchy.glob(f"{prefix}*")}
