"""How many rows have come since a list was made."""

from django.urls import reverse

from tests.faces.conftest import ClientOf
from tests.faces.rows import make_job


def test_newer_rows_are_counted_for_who_may_see_them(client_of: ClientOf) -> None:
    old = make_job()
    address = reverse("admin:pgjobs_job_newer", args=[old.pk])
    viewer = client_of("viewer")
    assert "newer" not in viewer.get(address).content.decode().split('role="status">')[1]

    make_job()
    assert "1 newer job:" in viewer.get(address).content.decode()
    make_job()
    assert "2 newer jobs:" in viewer.get(address).content.decode()
    assert viewer.post(address).status_code == 405
    assert client_of("stranger").get(address).status_code == 403
    assert client_of("anonymous").get(address).status_code == 302


def test_the_count_ends(client_of: ClientOf, monkeypatch: object) -> None:
    from pgjobs.admin import newer

    old = make_job()
    for _ in range(4):
        make_job()
    monkeypatch.setattr(newer, "MOST", 3)  # type: ignore[attr-defined]
    told = client_of("viewer").get(reverse("admin:pgjobs_job_newer", args=[old.pk])).content.decode()

    assert "3+ newer jobs:" in told
    far = client_of("superuser").get(reverse("admin:pgjobs_execution_newer", args=[10**30]))
    assert far.status_code == 200
