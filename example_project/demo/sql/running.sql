-- What is running, by whom, since when, and how long does its lease last?
SELECT j.id AS job,
       coalesce(d.title, j.job_type) AS what,
       j.lease_owner AS worker,
       to_char(clock_timestamp() - j.started_at, 'MI:SS.MS') AS running_for,
       round(extract(epoch FROM j.lease_expires_at - clock_timestamp()), 1) AS lease_left_s,
       round(extract(epoch FROM clock_timestamp() - j.heartbeat_at), 1) AS heartbeat_age_s,
       CASE WHEN j.lease_expires_at < clock_timestamp() THEN 'stuck: its lease has lapsed' ELSE 'its lease holds' END AS verdict
  FROM pgjobs_job j
  LEFT JOIN documents_document d ON d.job_id = j.id
 WHERE j.status = 'running'
 ORDER BY j.lease_expires_at, j.id
 LIMIT 20
