"""QUEUE on the command line: a document's path or a queue's name, and where its Redis is. Not here: what is done."""

from __future__ import annotations

import os
import re
import stat
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from delayq.cli.exits import INVALID, Wrong
from delayq.cli.output import note
from delayq.client.blocking import SyncClient
from delayq.client.document import read
from delayq.connection import Address, SyncConnection
from delayq.connection.address import secrets_dir
from delayq.contract import DelayQueue, Limits
from delayq.contract.durability import DurabilitySpec
from delayq.contract.problems import quote
from delayq.contract.words import KEY_PREFIX, OBJECT_NAME
from delayq.errors import DelayQError, InvalidDocument
from delayq.protocol.write_durability import Durability

if TYPE_CHECKING:
    from delayq.contract.kinds import Text

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
        running = Address.from_url(file.read_text().strip())
    except (OSError, UnicodeDecodeError, InvalidDocument):
        return None
    if running.places[0].host != LOOPBACK and not _ours(file):
        return None
    if not _answers(running):
        note(f"note: no Redis answers at the address in {file}, which a delayq run left; using spec.redis")
        return None
    note(f"note: using the Redis of the running delayq run ({file})")
    return running


def _ours(file: Path) -> bool:
    """Whether a run wrote it: with --redis it may name any host. A file that came with a checkout, others can read."""
    found = file.stat()
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _answers(address: Address) -> bool:
    with closing(SyncConnection(replace(address, timeout_seconds=ANSWER_SECONDS))) as connection:
        try:
            return connection.send([("PING",)]) == [b"PONG"]
        except DelayQError:
            return False


CONFIG_VARIABLE, URL_VARIABLE, HERE = "DELAYQ_CONFIG", "DELAYQ_REDIS_URL", Path("queue.yaml")
Source = Literal["--redis", "delayq run", "spec.redis"]


class TargetClient(SyncClient):
    """A client with the document's number of shards, if there is a document: the queue may have another."""

    documented: int | None = None

    def used(self) -> bool:
        """Whether anything was ever stored in this queue, or a scanner has served it."""
        self._do(self._operations.homes.asked())
        return self.shard_map.epoch > 0


@dataclass(frozen=True, kw_only=True)
class Target:
    """One queue, and how to get there."""

    queue: str
    address: Address
    shards: int = 1
    key_prefix: str = "delayq"
    limits: Limits
    durability: DurabilitySpec = field(default_factory=DurabilitySpec)
    document: Path | None = None
    source: Source = "--redis"

    @property
    def hint(self) -> str:
        """What to do when Redis does not answer. The URL is not repeated: it may hold a password."""
        told = " --redis URL" if self.source == "--redis" and URL_VARIABLE not in os.environ else ""
        return f"delayq doctor {self.document or self.queue}{told} checks every step of the way"

    def client(self) -> TargetClient:
        """Return a client that connects when it is used."""
        client = TargetClient(
            self.address,
            queue=self.queue,
            key_prefix=self.key_prefix,
            shards=self.shards,
            limits=self.limits,
            durability=Durability.of(self.durability),
        )
        client.documented = None if self.document is None else self.shards
        return client


def resolve(
    queue: str, *, redis: str | None = None, shards: int | None = None, key_prefix: str | None = None
) -> Target:
    """Find a queue. A document says everything; a name and a URL say enough when the queue has one shard."""
    told = shards is not None or key_prefix is not None
    if is_path(queue):
        if told:
            raise Wrong(
                "--shards and --key-prefix: the document says both",
                "leave them out, or give the queue's name",
            )
        return of_document(Path(queue), read(queue), redis)
    check_text(OBJECT_NAME, "QUEUE", f"the path of a document, or a name of {OBJECT_NAME.expected}", queue)
    found = None if told else _beside(queue, redis)
    if found is not None:
        return of_document(*found, redis)
    if redis is None:
        raise Wrong(
            f"queue {queue}: found no document of that queue, so its Redis is unknown",
            f"name its document instead of {queue} (or in ${CONFIG_VARIABLE}, or as ./{HERE}), "
            f"or give --redis URL (or ${URL_VARIABLE})",
        )
    prefix = "delayq" if key_prefix is None else key_prefix
    check_text(KEY_PREFIX, "--key-prefix", KEY_PREFIX.expected, prefix)
    return Target(queue=queue, address=of_url(redis), shards=shards or 1, key_prefix=prefix, limits=Limits())


def document_of(queue: str, says: str) -> tuple[Path, DelayQueue]:
    """Find the document of QUEUE, without which a command can do nothing; `says` is what it is needed for."""
    path = Path(queue) if is_path(queue) else Path(os.environ.get(CONFIG_VARIABLE) or HERE)
    if not is_path(queue) and not path.is_file():
        raise Wrong(f"queue {queue}: expected its document, {says}, found no {path}")
    document = read(path)
    if not is_path(queue) and document.queue != queue:
        raise Wrong(f"{path} is the document of queue {document.queue}, not of {queue}", "", INVALID)
    return path, document


def is_path(queue: str) -> bool:
    """Tell a document's path from a queue's name."""
    return "/" in queue or queue.endswith((".yaml", ".yml")) or Path(queue).is_file()


def of_document(path: Path, document: DelayQueue, redis: str | None) -> Target:
    """Take everything from a document, Redis from where it is said best: the URL, a `delayq run`, the document."""
    spec = document.spec
    source: Source = "--redis"
    address = of_url(redis) if redis else of_run(path)
    if not redis:
        source = "delayq run" if address else "spec.redis"
    return Target(
        queue=document.queue,
        address=address or Address.from_spec(spec.redis, secrets_dir()),
        source=source,
        shards=spec.shards,
        key_prefix=spec.redis.key_prefix,
        limits=spec.limits,
        durability=spec.durability,
        document=path,
    )


def _beside(queue: str, redis: str | None) -> tuple[Path, DelayQueue] | None:
    """Find the document of a name: $DELAYQ_CONFIG, else ./queue.yaml, when its queue has that name."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named) if named else HERE
    if not named and not path.is_file():
        return None
    try:
        document = read(path)
    except InvalidDocument as error:
        if redis is None:
            raise
        note(f"note: {path} is passed over, it cannot be used: {str(error).splitlines()[0]}")
        return None
    if document.queue == queue:
        return path, document
    if named and redis is None:
        raise Wrong(
            f"${CONFIG_VARIABLE}: {path} is the document of queue {document.queue}, not of {queue}",
            "",
            INVALID,
        )
    return None


def check_text(kind: Text, name: str, expected: str, got: str) -> None:
    """Refuse a word that no document could have."""
    if kind.pattern is None or len(got) > kind.max_length or not re.fullmatch(kind.pattern, got):
        raise Wrong(f"{name}: expected {expected}, got {quote(got)}")
