"""The product as one more strategy: its own tables in the lab's schema, its public API, its own worker command."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from django.core.management import call_command

from example_project.benchmark import claim_clock
from example_project.benchmark.fleet import LOOK_SECONDS, Fleet, environment
from example_project.demo.crew import DemoError
from example_project.lab.jobs import QUEUE, sleep_ms
from example_project.lab.plan import processes_and_slots
from example_project.lab.waiting import APPLICATION, wait

# Every hand-out is seen by the table itself, so the count does not rest on what the product says of it.
LOG_TRIGGER = """
    CREATE FUNCTION log_claim() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO claim_log (job, worker, claimed_at) VALUES (NEW.id, NEW.lease_owner, clock_timestamp());
        RETURN NULL;
    END $$;
    CREATE TRIGGER log_claim AFTER UPDATE OF status ON pgjobs_job FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM 'running' AND NEW.status = 'running') EXECUTE FUNCTION log_claim()"""
CLEAR = "TRUNCATE pgjobs_job, pgjobs_jobresult, pgjobs_worker, claim_log RESTART IDENTITY"
LEFT = "SELECT count(*) FROM pgjobs_job WHERE status <> 'succeeded'"


@dataclass(frozen=True)
class Claims:
    """Of one run: what the claims that brought something took, and the text of the first."""

    milliseconds: list[float]
    statement: str


class Product:
    """pgjobs, installed in the lab's schema."""

    def __init__(self, connection: psycopg.Connection, fleet: Fleet) -> None:
        self.connection = connection
        self._fleet = fleet
        self._numbers = itertools.count(1)

    def install(self) -> None:
        call_command("migrate", "pgjobs", verbosity=0, interactive=False)
        self.connection.execute(LOG_TRIGGER)

    def clear(self) -> None:
        self.connection.execute(CLEAR)
        self.connection.execute("VACUUM ANALYZE pgjobs_job")

    def run(
        self,
        workers: int,
        jobs: int,
        milliseconds: float,
        *,
        seconds: float,
        tick: Callable[[], None],
        pause: float = LOOK_SECONDS,
        shape: tuple[int, int] | None = None,
    ) -> Claims:
        """Let ``workers`` slots (or processes and slots as in ``shape``) empty a new queue of ``jobs``.

        The workers stand ready before the jobs are committed, as the plain ones do.
        """
        self.clear()
        name = f"product-{next(self._numbers)}"
        timings = self._fleet.folder / f"claims-{name}"
        processes, slots = shape or processes_and_slots(workers)
        with environment(**{claim_clock.VARIABLE: str(timings), "PGAPPNAME": APPLICATION}):
            self._fleet.start_workers(name, QUEUE, processes=processes, concurrency=slots)
        sleep_ms.enqueue_many([{"milliseconds": milliseconds}] * jobs)
        try:
            wait(self._done, f"the success of {jobs} jobs", 3 * seconds + 60, tick=tick, pause=pause)
        except DemoError as error:
            raise DemoError(f"{error} The worker's log ends:\n{self._fleet.log_tail(name)}") from error
        self._fleet.end(name)
        timed = [1000 * took for took, _ in claim_clock.read(timings)]
        return Claims(timed, claim_clock.statement(timings))

    def _done(self) -> bool:
        return self.connection.execute(LEFT).fetchone() == (0,)
