"""Imports what delayq's commands and handlers import, for the forks of tests/forking.py. It starts no thread."""

from __future__ import annotations

import gc
from importlib import import_module

from delayq.cli.root import COMMANDS, load

for command in COMMANDS:
    load(command)
for module in ("app.app", "guards.sql_unique", "handlers.python", "handlers.http_post", "local.supervisor"):
    import_module(f"delayq.{module}")
gc.collect()
gc.freeze()  # a collection in a fork would copy the pages of all these objects
