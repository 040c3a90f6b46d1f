"""Indexes on tables that workers use meanwhile: no migration of theirs holds a claim up."""

from django.contrib.postgres.operations import AddIndexConcurrently

_VALID = """
SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"""


class BuildIndex(AddIndexConcurrently):
    """CREATE INDEX CONCURRENTLY, unless the index is there.

    What a build that was cut off has left behind, which no plan uses and every write keeps up, is removed first: the
    migration may simply be run again.
    """

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        self._ensure_not_in_transaction(schema_editor)
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(_VALID, [schema_editor.quote_name(self.index.name)])
            found = cursor.fetchone()
        if found and found[0]:
            return
        if found:
            schema_editor.remove_index(model, self.index, concurrently=True)
        schema_editor.add_index(model, self.index, concurrently=True)
