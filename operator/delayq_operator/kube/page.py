"""A page of a list, read one object at a time. Pure.

Any client can create objects with the operator's labels. The API server stores up to 1.5 MiB of one in a compact form,
which can be 4 MB of JSON and twenty times as much in Python: parsed at once, few of them fill the operator's memory.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delayq.kube.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.kube.objects import Object

PAGE: Final = 10
"""Objects of a page: their JSON must fit into memory, twice."""
_BETWEEN: Final = re.compile(r"[\s,:]*")
_decoded = json.JSONDecoder().raw_decode


class Page:
    """A list, as the API server writes it."""

    def __init__(self, text: bytes) -> None:
        self._bytes, self._text = text, ""
        self.head: Object = {}
        """Everything but the objects; complete once they were read."""

    @property
    def metadata(self) -> Object:
        found: Object = self.head["metadata"]
        return found

    def objects(self) -> Iterator[Object]:
        """Yield each object. Raises Unavailable if this is no list."""
        try:
            self._text, self._bytes = self._bytes.decode(), b""
            yield from self._objects()
            self._text = ""
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise Unavailable(f"the API server's list cannot be read: {error}") from error

    def _objects(self) -> Iterator[Object]:
        at = self._skip(self._text.index("{") + 1)
        while self._text[at] != "}":
            key, at = self._value(at)
            if key == "items" and self._text[at] == "[":
                at = self._skip(at + 1)
                while self._text[at] != "]":
                    item, at = self._value(at)
                    yield item
                at = self._skip(at + 1)
            else:
                self.head[key], at = self._value(at)

    def _value(self, at: int) -> tuple[Any, int]:
        found, end = _decoded(self._text, at)
        return found, self._skip(end)

    def _skip(self, at: int) -> int:
        return _BETWEEN.match(self._text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
