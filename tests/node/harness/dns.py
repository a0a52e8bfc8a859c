"""The node's DNS: names of Services that have an address, and nothing else. Runs in the node's namespaces.

It answers from memory what it has seen of Services, so names go on to be known while the API server is away. UDP only,
A records only: what programs in pods ask for.
"""

from __future__ import annotations

import argparse
import socket
import struct
import threading
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from urllib3.exceptions import HTTPError

from tests.cluster.harness.rest import Refused, Rest

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object

DOMAIN: Final = "cluster.local"
PORT: Final = 53
TTL_SECONDS: Final = 5
RETRY_SECONDS: Final = 0.5
LARGEST: Final = 512
A, IN, POINTER = 1, 1, 0xC00C
RESPONSE, NO_SUCH_NAME = 0x8580, 3
SERVICES: Final = "/api/v1/services"


Services: TypeAlias = "dict[tuple[str, str], Object]"
"""By namespace and name."""


def look_up(services: Services, name: str) -> str | None:
    """The address of a name; None when there is no such name."""
    labels = name.lower().removesuffix(f".svc.{DOMAIN}").split(".")
    if not name.lower().endswith(f".svc.{DOMAIN}") or len(labels) != 2:
        return None
    found = services.get((labels[1], labels[0]), {"spec": {}})
    address = found["spec"].get("clusterIP")
    return None if address in {None, "", "None"} else str(address)


def follow(rest: Rest, known: Services, listed: threading.Event) -> None:
    """Keep Services up to date, for ever; `listed` is set once they are."""
    while True:
        try:
            found = rest.get(SERVICES)
            fresh = {_key(each): each for each in found["items"]}
            for gone in known.keys() - fresh.keys():
                del known[gone]
            known.update(fresh)
            listed.set()
            for event, body in rest.watch(SERVICES, since=found["metadata"]["resourceVersion"]):
                if event == "ERROR":
                    break
                if event == "DELETED":
                    known.pop(_key(body), None)
                else:
                    known[_key(body)] = body
        except (Refused, HTTPError, OSError, ValueError):
            time.sleep(RETRY_SECONDS)


def _key(body: Object) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def answer(query: bytes, services: Services) -> bytes:
    """The answer to a query of one question."""
    number, _, questions = struct.unpack_from("!HHH", query)
    if questions != 1:
        raise ValueError(f"{questions} questions")
    name, end = _name(query, 12)
    kind, group = struct.unpack_from("!HH", query, end)
    found = look_up(services, name)
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
    services, listed = dict[tuple[str, str], "Object"](), threading.Event()
    threading.Thread(target=follow, args=(Rest(options.kubeconfig), services, listed), daemon=True).start()
    listed.wait()
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
