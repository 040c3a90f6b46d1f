"""Browser tests: one Chromium for each test process, a context of its own for each person, a strict policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.db.backends.signals import connection_created
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from tests.browser import scene as scenes
from tests.browser.chromium import Chromium, program
from tests.browser.tab import Tab

HERE = Path(__file__).parent
# Ticks of live pages in a test; the pages say 5 s and more.
PACE_SECONDS = 0.3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = "no Chromium on this machine (on Debian: apt-get install chromium)" if program() is None else ""
    if find_spec("playwright") is None:
        missing = "Playwright is not installed (it comes with the extra `test`)"
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """The browser of this test process."""
    path = program()
    assert path is not None
    browser = Chromium(path)
    yield browser
    browser.close()


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    """Fragments of an earlier test are not shown in this one."""
    cache.clear()


@pytest.fixture(scope="session")
def web() -> Iterator[str]:
    """The address of the site, served from a thread of this process; needs no database by itself."""
    server = LiveServer("localhost")
    yield server.url
    server.stop()


@pytest.fixture(autouse=True)
def allowed_host(settings: Any) -> None:
    """The site is asked for by this name."""
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "localhost"]


@pytest.fixture
def tabs(chromium: Chromium) -> Iterator[Callable[..., Tab]]:
    """Opens contexts, and at the end fails for whatever their consoles complained of."""
    opened: list[Tab] = []

    def open_tab(address: str, cookies: Sequence[dict[str, str]] = (), **options: Any) -> Tab:
        tab = Tab(chromium, address, list(cookies), options, PACE_SECONDS)
        opened.append(tab)
        return tab

    yield open_tab
    complaints = [complaint for tab in opened for complaint in tab.close()]
    assert not complaints, "\n".join(complaints)


TabOf = Callable[..., Tab]


@pytest.fixture
def tab_of(transactional_db: None, web: str, tabs: Callable[..., Tab]) -> TabOf:
    """Gives a browser in which one person has logged in.

    ``viewer`` may look at every page; others may do what ``may`` names, and everything when it names nothing.
    The database comes first, so that no page asks for anything after it has been closed to the test.
    ``options`` are those of a browser context (``color_scheme``, ``viewport``, ``java_script_enabled``).
    """

    def tab_of(name: str, may: tuple[str, ...] | None = None, **options: Any) -> Tab:
        return tabs(web, cookies_of(person(name, may), web), **options)

    return tab_of


@pytest.fixture
def scene(transactional_db: None) -> scenes.Scene:
    """Something of everything in the tables."""
    return scenes.set_up()


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The SQL that the site sends from now on."""
    sent: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.append(sql)
        return execute(sql, params, many, context)

    def on_connection(connection: Any, **kwargs: Any) -> None:
        if watch not in connection.execute_wrappers:  # a thread that serves several requests connects anew
            connection.execute_wrappers.append(watch)

    connection_created.connect(on_connection)
    yield sent
    connection_created.disconnect(on_connection)


def person(name: str, may: tuple[str, ...] | None = None) -> User:
    """The user of that name, made if need be."""
    user = User.objects.filter(username=name).first()
    if user is None:
        user = User.objects.create_user(name, is_staff=True, is_superuser=may is None and name != "viewer")
        rights = Permission.objects.filter(content_type__app_label="pgjobs")
        rights = (
            rights.filter(codename__startswith="view_") if may is None else rights.filter(codename__in=may)
        )
        user.user_permissions.set(rights.exclude(codename="view_payload"))
    return user


def cookies_of(user: User, address: str) -> list[dict[str, str]]:
    """The cookies of a login, without the form."""
    client = Client()
    client.force_login(user)
    value = client.cookies[django_settings.SESSION_COOKIE_NAME].value
    return [{"name": django_settings.SESSION_COOKIE_NAME, "value": value, "url": address}]


def ticks(tab: Tab, count: int) -> None:
    """Waits until the page has asked so many times more."""
    goal = asked(tab) + count
    while asked(tab) < goal:
        tab.wait_for_timeout(100)


def asked(tab: Tab) -> int:
    """How often the page has asked for itself anew."""
    return sum("fragment=1" in address for address in tab.requests)
