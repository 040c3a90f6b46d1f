"""Django's `flush` for tests that commit, which call it after each of them: the same end, for less."""

from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.core.management.commands.flush import Command as DjangoFlush
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

# Filled by the signal post_migrate. Emptied and filled again only where a test has changed them.
KEPT = {"django_content_type", "auth_permission"}

# A table without a page has had no row since it was last truncated, not even one that was rolled back.
WRITTEN = """
SELECT named.relname
FROM pg_class named
WHERE named.relname = ANY(%s) AND pg_table_is_visible(named.oid)
  AND (pg_relation_size(named.oid) > 0
       OR EXISTS (SELECT FROM pg_partition_tree(named.oid) part WHERE pg_relation_size(part.relid) > 0))"""


class Command(DjangoFlush):
    """Truncates the tables that were written to, and none of the others."""

    _filled: dict[str, list[Any]] = {}
    """What `KEPT` held after the last whole flush, by database."""

    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        tables = set(connection.introspection.django_table_names(include_views=False))
        kept = sorted(KEPT & tables)
        name = connection.settings_dict["NAME"]
        if options.get("reset_sequences", True) or self._filled.get(name) != rows(connection, kept):
            super().handle(**options)
            self._filled[name] = rows(connection, kept)
            return
        with connection.cursor() as cursor:
            cursor.execute(WRITTEN, [sorted(tables - KEPT)])
            written = ", ".join(connection.ops.quote_name(table) for (table,) in cursor.fetchall())
            if written:
                # CASCADE, since those that refer to them must be named too; none of KEPT refers to others.
                cursor.execute(f"TRUNCATE {written} CASCADE")
        ContentType.objects.clear_cache()


def rows(connection: BaseDatabaseWrapper, tables: list[str]) -> list[Any]:
    """Everything in these tables."""
    with connection.cursor() as cursor:
        found = []
        for table in tables:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} ORDER BY id")  # noqa: S608
            found.append(cursor.fetchall())
        return found
