"""Handlers that store orders with Django's ORM, through connections with different settings. See test_django.py."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections, models

if TYPE_CHECKING:
    from delayq import Task

DATABASE: dict[str, Any] = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": "test",
    "USER": os.environ["SHOP_USER"],
    "PASSWORD": os.environ["SHOP_PASSWORD"],
    "HOST": "127.0.0.1",
    "PORT": os.environ["SHOP_PORT"],
}
KEPT = DATABASE | {"CONN_MAX_AGE": None}
settings.configure(
    DATABASES={"default": DATABASE, "kept": KEPT, "checked": KEPT | {"CONN_HEALTH_CHECKS": True}}
)
django.setup()


class Order(models.Model):  # type: ignore[misc]  # Django has no types
    """One run that succeeded."""

    task = models.TextField(primary_key=True)
    attempt = models.IntegerField()
    pid = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "orders"

    def __str__(self) -> str:
        return str(self.task)


def values(task: Task) -> dict[str, Any]:
    return {"task": task.id, "attempt": task.attempt, "pid": os.getpid()}


def store(task: Task) -> None:
    """Through the connection that the payload names."""
    Order.objects.using(task.payload).create(**values(task))


async def store_later(task: Task) -> None:
    """As the page for Django has it."""
    await sync_to_async(close_old_connections)()
    await Order.objects.using(task.payload).acreate(**values(task))
