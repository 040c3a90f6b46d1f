-- What has failed for good, after how many attempts, and why?
SELECT j.id AS job,
       coalesce(d.title, j.job_type) AS what,
       j.status,
       j.attempt_count || ' of ' || j.max_attempts AS attempts,
       j.last_error AS why
  FROM pgjobs_job j
  LEFT JOIN documents_document d ON d.job_id = j.id
 WHERE j.status IN ('failed', 'dead')
 ORDER BY j.completed_at, j.id
 LIMIT 20
