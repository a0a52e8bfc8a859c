"""Where a process answers probes and scrapes: one address, or every address of IPv4 and IPv6 at once."""

from __future__ import annotations

import socket
from typing import Final

from aiohttp import web

EVERYWHERE: Final = "*"
"""As a host: `0.0.0.0` would answer IPv4 only, `::` IPv6 only, and a pod may have an address of either kind or both."""


def site(runner: web.AppRunner, host: str, port: int) -> web.BaseSite:
    """Return what listens once it is started; port 0 takes a free one, the same for both kinds."""
    if host != EVERYWHERE:
        return web.TCPSite(runner, host, port)
    return web.SockSite(runner, _everywhere(port))


def _everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))  # a kernel without IPv6
