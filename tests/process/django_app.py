"""A program that runs functions of an App, which store orders with Django's ORM, before and after connections break.

It prints the outcomes, and how many connections each run leaves open. See test_django.py.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from itertools import product
from typing import Any

import django
import psycopg
from asgiref.sync import sync_to_async
from delayq import App
from delayq.django import fresh_connections
from delayq.handlers.app import AppHandler
from django.conf import settings
from django.db import connections, models

from tests.unit.handlers.support import a_task, document

LOGIN = {"USER": os.environ["SHOP_USER"], "PASSWORD": os.environ["SHOP_PASSWORD"]}
DATABASE: dict[str, Any] = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": "test",
    "HOST": "127.0.0.1",
    "PORT": os.environ["SHOP_PORT"],
    "OPTIONS": {"application_name": "orm"},
} | LOGIN
CHECKED = DATABASE | {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
settings.configure(DATABASES={"default": DATABASE, "checked": CHECKED})
django.setup()


class Order(models.Model):  # type: ignore[misc]  # Django has no types
    """One run that succeeded."""

    class Meta:
        app_label = "shop"
        db_table = "app_orders"

    def __str__(self) -> str:
        return str(self.pk)


async def coroutine(using: str) -> None:
    await Order.objects.using(using).acreate()


def plain(using: str) -> None:
    Order.objects.using(using).create()


def sql(statement: str) -> int:
    login = f"user={LOGIN['USER']} password={LOGIN['PASSWORD']} dbname=test host=127.0.0.1 port={DATABASE['PORT']}"
    with psycopg.connect(login, autocommit=True) as connection:
        [(number,)] = connection.execute(statement.encode()).fetchall()
    return int(number)


def opened() -> int:
    return sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'orm'")


async def closed() -> int:
    """How many are open, after what a connection takes that was closed to be gone from the list."""
    for _ in range(200):
        if not opened():
            return 0
        await asyncio.sleep(0.01)
    return opened()


async def ran(kind: str, using: str, *, middleware: bool) -> tuple[list[str], list[int]]:
    """The outcomes of two runs, between which all connections break, and how many each leaves open."""
    app = App()
    app.task(coroutine)
    app.task(plain)
    if middleware:
        app.around_run(fresh_connections)
    await sync_to_async(connections.close_all)()  # those of the last call
    handler = AppHandler(app, document({"python": {"app": "django_app:app"}}))
    task = replace(a_task(json.dumps({"using": using}).encode()), kind=kind, kind_version=1)
    outcomes, kept = [], []
    for _ in range(2):
        try:
            await handler.call(task)
        except Exception as error:  # noqa: BLE001 -- it is what the test asks for
            outcomes.append(type(error).__name__)
        else:
            outcomes.append("done")
        keeps = using == "checked" or (kind == "coroutine" and not middleware)
        kept.append(opened() if keeps else await closed())
        sql(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = 'orm'"
        )
    await handler.close()
    return outcomes, kept


async def main() -> None:
    cases = product(("coroutine", "plain"), ("default", "checked"), (False, True))
    found = {" ".join(map(str, case)): await ran(*case[:2], middleware=case[2]) for case in cases}
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
