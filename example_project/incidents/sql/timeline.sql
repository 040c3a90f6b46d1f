-- What happened in this execution, when, at which attempt, and which worker was lost?
SELECT at, what, how, attempts, detail
  FROM (
    SELECT recorded_at AS at, 1 AS place, id, step_id AS what, kind || CASE WHEN error IS NULL THEN ' done' ELSE ' failed' END AS how, attempts,
           CASE WHEN error IS NOT NULL THEN error ->> 'message'
                WHEN jsonb_typeof(output) = 'object' THEN coalesce(output ->> 'summary', output ->> 'branch', '')
                ELSE '' END AS detail
      FROM pgjobs_stepoutput WHERE execution_id = %(execution)s
    UNION ALL
    SELECT created_at, 2, id, step_id,
           CASE kind WHEN 'approval' THEN 'approval asked' WHEN 'job' THEN 'job queued' ELSE kind || ' begun' END, NULL,
           CASE WHEN kind = 'job' THEN 'job ' || target_id
                WHEN wake_at IS NOT NULL THEN 'until ' || to_char(wake_at AT TIME ZONE 'UTC', 'HH24:MI:SS') ELSE '' END
      FROM pgjobs_wait WHERE execution_id = %(execution)s
    UNION ALL
    SELECT resolved_at, 0, id, step_id,
           CASE WHEN kind = 'approval' AND (resolution ->> 'timeout')::boolean THEN 'nobody decided: ' || CASE WHEN approved THEN 'approved' ELSE 'rejected' END
                WHEN kind = 'approval' AND approved IS NOT NULL THEN CASE WHEN approved THEN 'approved' ELSE 'rejected' END
                WHEN resolution ? 'cancelled' THEN kind || ' cancelled'
                WHEN kind = 'job' THEN 'job ' || coalesce(resolution ->> 'status', 'timed out')
                ELSE kind || ' over' END, NULL,
           CASE WHEN decided_by <> '' THEN 'by ' || decided_by || CASE WHEN reason <> '' THEN ': ' || reason ELSE '' END
                WHEN kind = 'job' THEN 'job ' || target_id ELSE '' END
      FROM pgjobs_wait WHERE execution_id = %(execution)s AND resolved_at IS NOT NULL
    UNION ALL
    SELECT coalesce((lost.entry ->> 'at')::timestamptz, execution.completed_at), 3, lost.place,
           coalesce(lost.entry ->> 'worker', ''),
           CASE lost.entry ->> 'kind' WHEN 'lost' THEN 'worker lost' ELSE 'error' END,
           (lost.entry ->> 'attempt')::int, coalesce(lost.entry ->> 'message', '')
      FROM pgjobs_execution AS execution
     CROSS JOIN LATERAL jsonb_array_elements(execution.errors) WITH ORDINALITY AS lost (entry, place)
     WHERE execution.id = %(execution)s
    UNION ALL
    SELECT created_at, -1, id, workflow_name, 'started', NULL, coalesce(key, '')
      FROM pgjobs_execution WHERE id = %(execution)s
    UNION ALL
    SELECT completed_at, 4, id, workflow_name, status, attempt_count, note
      FROM pgjobs_execution WHERE id = %(execution)s AND completed_at IS NOT NULL
  ) AS event
 ORDER BY at, place, id
