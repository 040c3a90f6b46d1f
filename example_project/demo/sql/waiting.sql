-- What is waiting, since when, and why?
SELECT j.id AS job,
       coalesce(d.title, j.job_type) AS what,
       to_char(clock_timestamp() - j.created_at, 'MI:SS.MS') AS waiting_for,
       CASE
           WHEN j.crash_count > 0 THEN 'its worker died; next try in a process of its own'
           WHEN j.attempt_count > 0 THEN 'an attempt failed; next try later'
           WHEN j.available_at > clock_timestamp() THEN 'not due yet'
           ELSE 'no free slot yet'
       END AS why,
       round(greatest(extract(epoch FROM j.available_at - clock_timestamp()), 0), 1) AS due_in_s
  FROM pgjobs_job j
  LEFT JOIN documents_document d ON d.job_id = j.id
 WHERE j.status = 'pending'
 ORDER BY j.priority, j.available_at, j.id
 LIMIT 20
