"""The shop's App in Django, as a project of one file: schedule_sync connects with the first request of each process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from shop.tasks import cancel_unpaid  # type: ignore[import-not-found]  # not where mypy looks

if TYPE_CHECKING:
    from django.http import HttpRequest

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of the example")  # noqa: S106


def place(_: HttpRequest, order: int) -> JsonResponse:
    """Place an order, and cancel it in 30 minutes if it is unpaid by then.

    In a transaction, schedule with django.db.transaction.on_commit: the task must not run before the order is stored.
    """
    task = cancel_unpaid.options(delay="30m", id=f"order-{order}", if_exists="keep")
    return JsonResponse({"task": task.schedule_sync(order=order).id}, status=201)


urlpatterns = [path("orders/<int:order>", place)]
web = get_wsgi_application()

if __name__ == "__main__":  # python -m web.django_shop runserver
    execute_from_command_line(sys.argv)
