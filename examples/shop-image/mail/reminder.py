"""The handler: sends a mail to a customer who has left a basket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import Template  # in the image, by requirements.txt

if TYPE_CHECKING:
    from delayq import Task

LETTER = Template(
    "Dear {{ name }}, {{ things | join(' and ') }} {{ 'are' if things[1:] else 'is' }} still waiting."
)


async def remind(task: Task) -> None:
    """Write the mail. A real shop would hand it to a mail server, and raise Retry when that is down."""
    print(LETTER.render(task.payload), flush=True)
