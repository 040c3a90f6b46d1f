-- What does each document of the demo look like now?
SELECT d.id,
       d.title,
       j.id AS job_id,
       j.status,
       j.attempt_count,
       j.crash_count,
       coalesce(d.page_count, (j.progress ->> 'done')::int, 0) AS done,
       coalesce(d.page_count, (j.progress ->> 'total')::int) AS total,
       coalesce(j.lease_owner, '') AS worker,
       w.pid,
       extract(epoch FROM j.lease_expires_at - clock_timestamp())::float AS lease_left,
       extract(epoch FROM clock_timestamp() - j.heartbeat_at)::float AS heartbeat_age,
       extract(epoch FROM j.available_at - clock_timestamp())::float AS due_in,
       coalesce(j.completed_by, '') AS completed_by,
       coalesce(j.last_error, '') AS last_error
  FROM documents_document d
  JOIN pgjobs_job j ON j.id = d.job_id
  LEFT JOIN pgjobs_worker w ON w.name = j.lease_owner
 WHERE d.id = ANY(%(documents)s)
 ORDER BY d.id
