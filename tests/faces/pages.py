"""What tests of pages share: people with rights, and what a page says."""

from typing import Any

from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

VIEW = ("view_job", "view_worker", "view_execution", "view_wait", "view_operatoraction")


def person(name: str, *codenames: str, client: Client | None = None, **columns: Any) -> Client:
    """The browser of one member of staff, who may look at everything and has these rights besides."""
    user = User.objects.create_user(name, password="secret", is_staff=True, **columns)
    found = Permission.objects.filter(content_type__app_label="pgjobs", codename__in=(*VIEW, *codenames))
    assert {each.codename for each in found} >= set(codenames), codenames
    user.user_permissions.set(found)
    client = client or Client()
    client.force_login(user)
    return client


def address(name: str, *args: Any) -> str:
    """The address of one page of the app."""
    return reverse(f"admin:pgjobs_{name}", args=args)


def text_of(client: Client, url: str) -> str:
    """What a page says."""
    response = client.get(url)
    assert response.status_code == 200, (url, response.status_code)
    return str(response.content.decode())


def as_seen(*rows: Any) -> dict[str, list[str]]:
    """What a form carries of rows as they stand, as if its page had just been made."""
    return {"seen": [f"{row.pk}:{row.status}:{row.attempt_count}" for row in rows]}


def said(response: Any) -> str:
    """What a person is told after a verb."""
    return " | ".join(str(message) for message in get_messages(response.wsgi_request))
