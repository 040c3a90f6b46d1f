"""Locks of tables that workers use meanwhile: had for a moment, or not at all."""

# A lock that waits for a long transaction holds up all who come after it, and those that were had before it, of workers,
# stop every heartbeat. So none is waited for long, and what was had is given up (with the block) before the next try.
_ALONE = r"""
DO $$
DECLARE
    patience text := current_setting('lock_timeout');
BEGIN
    FOR place IN 1..120 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '500ms', true);
            LOCK TABLE {tables} IN {mode} MODE;
            PERFORM set_config('lock_timeout', patience, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.5);
        END;
    END LOOP;
    RAISE lock_not_available USING
        MESSAGE = 'pgjobs: {failed}',
        HINT = 'Nothing was changed. End the long transactions (pg_stat_activity), then migrate again.';
END $$;
"""


def alone(tables: str, *, mode: str, failed: str) -> str:
    """SQL that locks the tables, all at once, for the rest of the transaction; ``failed`` says what was in the way."""
    return _ALONE.format(tables=tables, mode=mode, failed=failed)
