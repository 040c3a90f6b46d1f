-- What was lost to a dead worker, when was it last heard of, and who finished the work?
SELECT j.id AS job,
       coalesce(d.title, j.job_type) AS what,
       lost.entry ->> 'worker' AS lost_with,
       to_char((lost.entry ->> 'heartbeat_at')::timestamptz AT TIME ZONE 'UTC', 'HH24:MI:SS') AS last_heartbeat,
       to_char((lost.entry ->> 'at')::timestamptz AT TIME ZONE 'UTC', 'HH24:MI:SS') AS given_back,
       j.status AS now,
       j.attempt_count AS attempts,
       coalesce(j.completed_by, '') AS finished_by
  FROM pgjobs_job j
  LEFT JOIN documents_document d ON d.job_id = j.id
 CROSS JOIN LATERAL jsonb_array_elements(j.errors) AS lost (entry)
 WHERE lost.entry ->> 'kind' = 'lost'
 ORDER BY j.id, lost.entry ->> 'at'
 LIMIT 20
