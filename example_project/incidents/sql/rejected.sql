-- Which fixes were rejected, at which step, by whom, and why?
SELECT fix.summary AS fix,
       incident.repository,
       wait.step_id AS step,
       coalesce(nullif(wait.decided_by, ''), 'nobody: the time ran out') AS rejected_by,
       to_char(wait.resolved_at AT TIME ZONE 'UTC', 'HH24:MI:SS') AS at,
       wait.reason
  FROM pgjobs_wait AS wait
  JOIN incidents_incident AS incident ON incident.execution_id = wait.execution_id
  JOIN incidents_fix AS fix ON fix.incident_id = incident.id
 WHERE wait.kind = 'approval' AND wait.approved IS FALSE
 ORDER BY wait.resolved_at
