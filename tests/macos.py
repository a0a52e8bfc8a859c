"""A Python on Linux that lacks what macOS lacks, as far as Python can tell. There is no Mac among our machines.

Not here: the kernel of macOS, its file system, its binaries and wheels. What passes here was not tried on a Mac.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# As sitecustomize.py, Python imports it before everything else. os.waitid came to macOS with Python 3.13.
SITECUSTOMIZE = """
import select

for name in [name for name in dir(select) if name.lower().startswith("epoll")]:
    delattr(select, name)  # before socket imports selectors, which would take it

import os, resource, signal, socket, sys, sysconfig, types

sysconfig.get_config_vars()  # it reads a file that is named after the platform
for module, prefixes in {
    os: (
        "pidfd_", "sched_", "eventfd", "EFD_", "memfd_", "MFD_", "splice", "SPLICE_", "copy_file_range", "getrandom",
        "GRND_", "posix_fadvise", "posix_fallocate", "POSIX_FADV_", "setns", "unshare", "CLONE_", "waitid", "P_PID",
        "P_PGID", "P_ALL", "pipe2", "fdatasync", "getresuid", "getresgid", "setresuid", "setresgid", "getxattr",
        "setxattr", "listxattr", "removexattr", "O_DIRECT", "O_TMPFILE", "O_PATH", "O_NOATIME",
    ),
    signal: ("pidfd_", "sigwaitinfo", "sigtimedwait", "SIGRT", "SIGSTKFLT", "SIGPOLL", "SIGPWR", "SIGCLD"),
    socket: (
        "AF_NETLINK", "AF_PACKET", "AF_CAN", "AF_ALG", "AF_VSOCK", "SO_PEERCRED", "SO_MARK", "SO_BINDTODEVICE",
        "SOCK_NONBLOCK", "SOCK_CLOEXEC", "TCP_USER_TIMEOUT", "TCP_QUICKACK", "TCP_CORK", "TCP_DEFER_ACCEPT",
        "MSG_NOSIGNAL", "MSG_CMSG_CLOEXEC", "MSG_ERRQUEUE", "IP_BIND_ADDRESS_NO_PORT",
    ),
    resource: ("prlimit", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RT", "RLIMIT_SIGPENDING", "RUSAGE_THREAD"),
}.items():
    for name in dir(module):
        if name.startswith(prefixes):
            delattr(module, name)


def no_proc(event, args):
    if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "macOS has no such file system", args[0])


sys.addaudithook(no_proc)
sys.modules["_scproxy"] = types.SimpleNamespace(_get_proxy_settings=dict, _get_proxies=dict)  # only macOS has it
sys.platform = "darwin"
"""


def environment(folder: Path) -> dict[str, str]:
    """Write the file, and return the variable that makes Python find it."""
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}
