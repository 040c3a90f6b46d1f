-- A day of figures. What the workers have counted tonight goes to the minutes in which the charges were declined.
UPDATE pgjobs_minute SET minute = minute - interval '13 minutes'
WHERE minute > '1970-01-02' AND queue IN ('billing', 'crm');

INSERT INTO pgjobs_minute (minute, queue, job_type, done, failed, dead, retried, wait_seconds, run_seconds,
                           wait_counts, run_counts)
SELECT date_trunc('minute', statement_timestamp()) - ago * interval '1 minute', queue, job_type,
       round(rate * (1 + 0.35 * sin(ago / 9.0)) * (CASE WHEN ago < 14 THEN calm ELSE 1 END))::bigint,
       0, 0, CASE WHEN ago % 7 = 0 THEN 1 ELSE 0 END,
       rate * wait, rate * run,
       ARRAY[rate / 2, rate / 4, rate / 8, rate / 16, CASE WHEN ago < 14 THEN rate / 4 ELSE 0 END]::bigint[],
       ARRAY(SELECT round(rate * CASE n - floor(log(2, run / 0.01)) WHEN -1 THEN 0.3 WHEN 0 THEN 0.45 WHEN 1 THEN 0.2
                                      WHEN 2 THEN 0.04 WHEN 3 THEN 0.01 ELSE 0 END)::bigint
             FROM generate_series(0, 20) AS n ORDER BY n)
FROM generate_series(1, 1440) AS ago,
     (VALUES ('mail', 'mail.send', 130, 0.8, 0.02, 0.05),
             ('billing', 'billing.charge', 90, 0.0, 0.05, 0.9),
             ('documents', 'documents.extract', 12, 1.0, 0.3, 2.5),
             ('crm', 'crm.sync', 25, 0.7, 0.1, 1.2),
             ('imports', 'imports.load', 2, 1.0, 0.5, 8.0)) AS kind(queue, job_type, rate, calm, wait, run)
ON CONFLICT (minute, queue, job_type) DO UPDATE SET done = pgjobs_minute.done + EXCLUDED.done;

-- Declined until nobody was left to try.
UPDATE pgjobs_minute SET done = 0, retried = 50 + extract(minute FROM minute)::int % 30, dead = dead + 6
WHERE queue = 'billing' AND minute > clock_timestamp() - interval '19 minutes'
  AND minute <= clock_timestamp() - interval '12 minutes';
UPDATE pgjobs_minute SET done = 0 WHERE queue = 'billing' AND minute > clock_timestamp() - interval '12 minutes';
