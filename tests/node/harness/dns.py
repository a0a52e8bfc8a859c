"""The node's DNS: names of Services that have an address, and nothing else. Runs in the node's namespaces.

UDP only, A records only: what programs in pods ask for.
"""

from __future__ import annotations

import argparse
import socket
import struct
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from urllib3.exceptions import HTTPError

from tests.cluster.harness.rest import Refused, Rest

DOMAIN: Final = "cluster.local"
PORT: Final = 53
TTL_SECONDS: Final = 5
LARGEST: Final = 512
A, IN, POINTER = 1, 1, 0xC00C
RESPONSE, NO_SUCH_NAME = 0x8580, 3


class Services:
    """Addresses of Services, and of those that were asked for before while the API server is away."""

    def __init__(self, rest: Rest) -> None:
        self._rest, self._known = rest, dict[str, "str | None"]()

    def look_up(self, name: str) -> str | None:
        """The address of a name; None when there is no such name."""
        labels = name.lower().removesuffix(f".svc.{DOMAIN}").split(".")
        if not name.lower().endswith(f".svc.{DOMAIN}") or len(labels) != 2:
            return None
        path = f"/api/v1/namespaces/{labels[1]}/services?fieldSelector=metadata.name%3D{labels[0]}"
        try:  # a list, for kube-proxy, whose rights these are, may get none
            addresses = [each["spec"].get("clusterIP") for each in self._rest.get(path)["items"]]
            self._known[path] = next((each for each in addresses if each not in {None, "", "None"}), None)
        except (Refused, HTTPError, OSError):
            pass  # it is away
        return self._known.get(path)


def answer(query: bytes, services: Services) -> bytes:
    """The answer to a query of one question."""
    number, _, questions = struct.unpack_from("!HHH", query)
    if questions != 1:
        raise ValueError(f"{questions} questions")
    name, end = _name(query, 12)
    kind, group = struct.unpack_from("!HH", query, end)
    found = services.look_up(name)
    addresses = [found] if found and (kind, group) == (A, IN) else []
    flags = RESPONSE | (NO_SUCH_NAME if found is None else 0)
    header = struct.pack("!HHHHHH", number, flags, 1, len(addresses), 0, 0)
    record = struct.pack("!HHHIH", POINTER, A, IN, TTL_SECONDS, 4)
    return header + query[12 : end + 4] + b"".join(record + IPv4Address(each).packed for each in addresses)


def _name(query: bytes, at: int) -> tuple[str, int]:
    labels = []
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    return ".".join(labels), at + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    options = parser.parse_args()
    services = Services(Rest(options.kubeconfig))
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind((options.address, PORT))
        while True:
            query, client = server.recvfrom(LARGEST)
            try:
                server.sendto(answer(query, services), client)
            except (ValueError, IndexError, struct.error, OSError) as error:
                print(f"{client}: {error!r}", flush=True)


if __name__ == "__main__":
    main()
