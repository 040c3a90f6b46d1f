"""A host dies in mid-job: three jobs, two workers, one of them lost, sampled until everything has succeeded."""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.core.management import call_command

from example_project.benchmark.fleet import environment
from example_project.lab.jobs import QUEUE, invoice
from example_project.lab.laboratory import Laboratory
from example_project.lab.waiting import wait

JOBS = 3
OVERDUE = "half a lease later"
"""The moment before the reaper is called."""
NUMBER = "invoice-2026-{:06d}"
ROWS = """
    SELECT id, status, attempt_count, crash_count, coalesce(lease_owner, ''),
           extract(epoch FROM lease_expires_at - clock_timestamp())::float8,
           extract(epoch FROM clock_timestamp() - heartbeat_at)::float8
    FROM pgjobs_job ORDER BY id"""
RESULTS = "SELECT count(*) FROM pgjobs_jobresult"
FINISHED = "SELECT id, coalesce(completed_by, '') FROM pgjobs_job"
LOST = "SELECT id, errors -> 0 ->> 'kind' FROM pgjobs_job WHERE attempt_count > 1"


@dataclass(frozen=True)
class Sample:
    """One row of the job table at one moment; times in seconds."""

    at: float
    """Since the first sample."""
    event: str
    """What the lab did just before."""
    job: int
    status: str
    attempts: int
    crashes: int
    worker: str
    """A or B, who were started; C for the process in which the returned job runs alone."""
    lease_left: float | None
    heartbeat_age: float | None


@dataclass
class Story:
    """The samples, and what was left at the end."""

    lease_seconds: float
    samples: list[Sample] = field(default_factory=list)
    killed_at: float = 0.0
    reaped_at: float = 0.0
    results: int = 0
    lost_job: int = 0
    recorded_as: str = ""
    """Kind of the first entry in the lost job's history."""
    finished_by: dict[int, str] = field(default_factory=dict)

    def last(self, job: int) -> Sample:
        return [sample for sample in self.samples if sample.job == job][-1]


class Play:
    """Runs the story once."""

    def __init__(self, lab: Laboratory) -> None:
        self._lab = lab
        self._story = Story(lab.plan.lease_seconds)
        self._names: dict[str, str] = {"": ""}
        self._began = 0.0
        self._sampled_at = 0.0

    def perform(self) -> Story:
        plan, story = self._lab.plan, self._story
        self._lab.progress.step("crash: two workers, one of them lost", plan.crash_seconds())
        self._lab.product.clear()
        self._start("A")
        self._start("B")
        for number in range(1, JOBS + 1):
            key = NUMBER.format(number)
            invoice.using(idempotency_key=key).enqueue(number=key, seconds=plan.job_seconds)
        self._until(lambda: len(self._running()) == 2, "two running jobs")
        self._began = time.monotonic()
        self._sample("both workers have a job")
        self._pass(plan.job_seconds / 12)
        story.lost_job = next(sample.job for sample in story.samples if sample.worker == "A")
        self._lab.fleet.lose_host("A")
        story.killed_at = self._now()
        self._sample("SIGKILL to worker A and its supervisor")
        self._until(
            lambda: self._lease_left(story.lost_job) < -plan.lease_seconds / 2, "the lapse of a lease"
        )
        story.reaped_at = self._now()
        self._sample(OVERDUE)
        call_command("runreaper", once=True, stdout=io.StringIO())
        self._sample("the reaper took it back")
        self._until(self._all_succeeded, "the success of all jobs")
        self._sample("all jobs have succeeded")
        self._close()
        return story

    def _start(self, name: str) -> None:
        """A ``runworkers`` each, as on two hosts. Without reaping, so that the dead worker's row can be seen."""
        plan = self._lab.plan
        with environment(PGJOBS_REAP_SECONDS="0.5"):
            self._lab.fleet.start_workers(
                name,
                QUEUE,
                processes=1,
                concurrency=1,
                lease_seconds=plan.lease_seconds,
                heartbeat_seconds=plan.heartbeat_seconds,
                no_reaper=True,
            )
        ((worker, _),) = self._lab.fleet.workers(name)
        self._names[worker] = name

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def looked() -> bool:
            if self._began and time.monotonic() - self._sampled_at >= self._lab.plan.sample_seconds:
                self._sample("")
            return condition()

        wait(looked, what, 5 * self._lab.plan.crash_seconds(), tick=self._lab.progress.tick, pause=0.05)

    def _pass(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= until, "time to pass")

    def _sample(self, event: str) -> None:
        self._sampled_at = time.monotonic()
        for job, status, attempts, crashes, owner, left, age in self._lab.connection.execute(ROWS):
            worker = self._names.setdefault(owner, "C")
            self._story.samples.append(
                Sample(self._now(), event, job, status, attempts, crashes, worker, left, age)
            )

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _running(self) -> list[int]:
        return [row[0] for row in self._lab.connection.execute(ROWS) if row[1] == "running"]

    def _lease_left(self, job: int) -> float:
        return float(next(row[5] for row in self._lab.connection.execute(ROWS) if row[0] == job))

    def _all_succeeded(self) -> bool:
        return all(row[1] == "succeeded" for row in self._lab.connection.execute(ROWS))

    def _close(self) -> None:
        connection = self._lab.connection
        self._lab.fleet.end("B")
        results = connection.execute(RESULTS).fetchone()
        assert results is not None
        self._story.results = results[0]
        finished = connection.execute(FINISHED).fetchall()
        self._story.finished_by = {job: self._names.setdefault(owner, "C") for job, owner in finished}
        self._story.recorded_as = next((kind for _, kind in connection.execute(LOST)), "")


def measure(lab: Laboratory) -> Story:
    return Play(lab).perform()
