"""A registry of the test's own, and an ear on the channel that workers listen to."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgjobs.queue.enqueue import CHANNEL
from pgjobs.queue.registry import registry
from tests.support.own_database import connection

END = "pgjobs_test_end"


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test declares is forgotten after it."""
    monkeypatch.setattr(registry, "_by_name", dict(registry._by_name))


@pytest.fixture
def heard(transactional_db: None) -> Iterator[Callable[[], list[str]]]:
    """Gives the payloads of the notifications since the last call. Needs no waiting: a mark is sent after them."""
    params = {
        k: v for k, v in connection.get_connection_params().items() if k not in ("cursor_factory", "context")
    }
    with psycopg.connect(**params, autocommit=True) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        listener.execute(f"LISTEN {END}")

        def since() -> list[str]:
            with connection.cursor() as cursor:
                cursor.execute(f"NOTIFY {END}")
            got = []
            for notification in listener.notifies(timeout=20):
                if notification.channel == END:
                    return got
                got.append(notification.payload)
            raise AssertionError("the mark never came")

        yield since
