"""Who may come to the operator's pages."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import Client

# What each kind of staff may do; `superuser` and `outsider` (not staff) are made apart.
PERMISSIONS = {
    "stranger": (),
    "viewer": ("view_job", "view_worker"),
    "retrier": ("view_job", "retry_job"),
    "canceller": ("view_job", "cancel_job"),
    "blind": ("retry_job", "cancel_job"),
}


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """No page of an earlier test is served from the cache."""
    cache.clear()
    yield


ClientOf = Callable[[str], Client]


@pytest.fixture
def client_of(db: None) -> ClientOf:
    """Gives the browser of one kind of user; `anonymous` has not logged in."""

    def client_of(kind: str, **options: bool) -> Client:
        client = Client(**options)
        if kind == "anonymous":
            return client
        staff = kind != "outsider"
        user = User.objects.create_user(
            kind, password="secret", is_staff=staff, is_superuser=kind == "superuser"
        )
        user.user_permissions.set(
            Permission.objects.filter(
                content_type__app_label="pgjobs",
                codename__in=PERMISSIONS.get(kind, ("view_job", "retry_job")),
            )
        )
        client.force_login(user)
        return client

    return client_of
