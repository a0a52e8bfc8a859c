"""Where Redis is: a URL, the Redis of a `delayq run` on this machine, or a document's spec.redis."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delayq.cli.exits import Wrong
from delayq.cli.output import note
from delayq.client.base import secrets_dir
from delayq.connection import Address, SyncConnection
from delayq.errors import DelayQError, InvalidDocument

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import Redis

# Where `delayq run` says where its Redis is. The names are those of local/datadir.py, and a test holds them to it:
# importing them would load half of delayq.
DATA_DIR: Final = ".delayq"
URL_FILE: Final = "redis.url"
LOOPBACK: Final = "127.0.0.1"  # an embedded Redis listens nowhere else
ANSWER_SECONDS = 1.0


def of_url(url: str) -> Address:
    """Read --redis."""
    try:
        return Address.from_url(url)
    except InvalidDocument as error:
        what, _, hint = str(error).partition("; ")
        raise Wrong(what.replace("Redis URL", "--redis"), hint) from None


def of_run(document: Path) -> Address | None:
    """Return the Redis of a `delayq run` of this document, when one is running; say so, for it is not spec.redis."""
    file = document.parent / DATA_DIR / URL_FILE
    try:
        address = Address.from_url(file.read_text().strip())
    except (OSError, UnicodeDecodeError, InvalidDocument):
        return None
    if address.places[0].host != LOOPBACK and not _ours(file):
        return None
    if not _answers(address):
        note(f"note: no Redis answers at the address in {file}, which a delayq run left; using spec.redis")
        return None
    note(f"note: using the Redis of the running delayq run ({file})")
    return address


def _ours(file: Path) -> bool:
    """Whether a run wrote it: with --redis it may name any host. A file that came with a checkout, others can read."""
    found = file.stat()
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def of_spec(spec: Redis) -> Address:
    """Read spec.redis and the secrets it names."""
    return Address.from_spec(spec, secrets_dir())


def _answers(address: Address) -> bool:
    connection = SyncConnection(replace(address, timeout_seconds=ANSWER_SECONDS))
    try:
        [reply] = connection.send([("PING",)])
    except DelayQError:
        return False
    finally:
        connection.close()
    return bool(reply == b"PONG")
