"""Recovery by the document's check, in scanners and reapers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from delayq.recovery import checks
from delayq.recovery.recovery import Recovery
from delayq.service.shutdown import leave

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.processes.runtime import Setting


@asynccontextmanager
async def recovery_of(setting: Setting) -> AsyncIterator[Recovery | None]:
    """Provide recovery by the document's check, None without one; InvalidDocument when it cannot be used."""
    check = checks.build(setting.queue, setting.address, secrets_dir=setting.secrets_dir)
    if check is None:
        yield None
        return
    await check.start()
    recovery = Recovery(setting.commands, setting.address, setting.queue.spec, check)
    try:
        yield recovery
    finally:
        await check.close()
    if recovery.hangs:
        leave()
