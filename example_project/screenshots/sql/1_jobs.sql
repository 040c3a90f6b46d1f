-- The charges were declined in the quarter of an hour before; the worker has been silent since.
WITH newest AS (SELECT max(id) AS id FROM pgjobs_job WHERE status <> 'running'),
     shift AS (SELECT job.id, interval '13 minutes' + (newest.id - job.id) * interval '0.4 seconds' AS by
               FROM pgjobs_job AS job, newest)
UPDATE pgjobs_job AS job SET
    created_at = created_at - interval '18 minutes',
    available_at = available_at - interval '18 minutes',
    started_at = started_at - shift.by,
    completed_at = completed_at - shift.by,
    errors = COALESCE((
        SELECT jsonb_agg(entry || jsonb_build_object('at', (entry ->> 'at')::timestamptz - shift.by) ORDER BY n)
        FROM jsonb_array_elements(job.errors) WITH ORDINALITY AS each(entry, n)
    ), '[]')
FROM shift
WHERE job.id = shift.id AND status <> 'running' AND available_at <= clock_timestamp();

UPDATE pgjobs_worker SET
    started_at = started_at - interval '5 hours',
    last_done_at = CASE WHEN queues = '["billing"]' THEN last_done_at - interval '13 minutes' ELSE last_done_at END,
    heartbeat_at = CASE WHEN queues = '["billing"]' THEN heartbeat_at - interval '12 minutes' ELSE heartbeat_at END,
    last_poll_at = CASE WHEN queues = '["billing"]' THEN last_poll_at - interval '12 minutes' ELSE last_poll_at END;

-- The incidents began over an hour ago; their steps took minutes rather than moments. An order came after the charges.
UPDATE pgjobs_execution SET
    created_at = created_at - interval '80 minutes',
    started_at = started_at - interval '80 minutes',
    available_at = available_at - interval '80 minutes',
    updated_at = updated_at - interval '72 minutes'
WHERE workflow_name <> 'warehouse.fulfil';

UPDATE pgjobs_stepoutput AS step SET
    recorded_at = recorded_at - interval '78 minutes' + ordinal * interval '2 minutes',
    seconds = seconds + 70 + ordinal * 20
FROM pgjobs_execution AS execution
WHERE execution.id = step.execution_id AND workflow_name <> 'warehouse.fulfil';

UPDATE pgjobs_wait AS wait SET
    created_at = wait.created_at - interval '72 minutes',
    wake_at = wake_at - interval '72 minutes',
    resolved_at = resolved_at - interval '72 minutes'
FROM pgjobs_execution AS execution
WHERE execution.id = wait.execution_id AND workflow_name <> 'warehouse.fulfil';

UPDATE pgjobs_execution SET
    created_at = created_at - interval '11 minutes',
    started_at = started_at - interval '11 minutes',
    available_at = available_at - interval '11 minutes',
    updated_at = updated_at - interval '11 minutes'
WHERE workflow_name = 'warehouse.fulfil';

UPDATE pgjobs_stepoutput AS step SET recorded_at = recorded_at - interval '11 minutes'
FROM pgjobs_execution AS execution
WHERE execution.id = step.execution_id AND workflow_name = 'warehouse.fulfil';

UPDATE pgjobs_wait AS wait SET created_at = wait.created_at - interval '11 minutes'
FROM pgjobs_execution AS execution
WHERE execution.id = wait.execution_id AND workflow_name = 'warehouse.fulfil';

-- The log of all that: workers came hours ago, jobs died a quarter of an hour ago, people acted between then and now.
UPDATE pgjobs_activity SET at = at - CASE
    WHEN kind = 'worker_started' THEN interval '5 hours'
    WHEN kind IN ('job_died', 'error_new') THEN interval '13 minutes'
    ELSE interval '2 minutes' END
WHERE at <= clock_timestamp();
