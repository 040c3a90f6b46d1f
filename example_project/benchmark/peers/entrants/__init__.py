"""Everybody who can take part, by name; ``pgjobs`` and the bare loop always do."""

from example_project.benchmark.peers.entrant import Entrant
from example_project.benchmark.peers.entrants.absurd import ABSURD
from example_project.benchmark.peers.entrants.bare import BARE
from example_project.benchmark.peers.entrants.chancy import CHANCY
from example_project.benchmark.peers.entrants.dbos import DBOS, DBOS_UNBOUNDED
from example_project.benchmark.peers.entrants.django_ox import DJANGO_OX
from example_project.benchmark.peers.entrants.django_tasks_db import DJANGO_TASKS_DB
from example_project.benchmark.peers.entrants.dramatiq_postgres import DRAMATIQ_POSTGRES
from example_project.benchmark.peers.entrants.oban import OBAN
from example_project.benchmark.peers.entrants.pgjobs import PGJOBS
from example_project.benchmark.peers.entrants.pgqueuer import PGQUEUER, PGQUEUER_BATCH_100
from example_project.benchmark.peers.entrants.procrastinate import PROCRASTINATE

ALWAYS = (PGJOBS, BARE)
PEERS: dict[str, Entrant] = {
    entrant.name: entrant
    for entrant in (
        PROCRASTINATE,
        PGQUEUER,
        PGQUEUER_BATCH_100,
        DBOS,
        DBOS_UNBOUNDED,
        ABSURD,
        CHANCY,
        OBAN,
        DRAMATIQ_POSTGRES,
        DJANGO_OX,
        DJANGO_TASKS_DB,
    )
}
