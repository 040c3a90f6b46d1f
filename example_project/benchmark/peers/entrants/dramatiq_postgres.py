from example_project.benchmark.peers.entrant import Entrant

DRAMATIQ_POSTGRES = Entrant(
    name="dramatiq-postgres",
    packages=("dramatiq-postgres", "psycopg[binary]"),
    settings=(
        "`dramatiq --processes 1 --threads` (its user guide), LISTEN/NOTIFY on (its default)",
        "no results stored: a message that is done is deleted, so that all ran is seen from an empty queue with "
        "nothing rejected",
        "bulk: one call a message, there is none for many",
    ),
    unfinished="SELECT EXISTS (SELECT FROM dramatiq.queue WHERE state <> 'rejected')",
    # What is left of those that were sent; the benchmark takes it from the number it sent.
    succeeded="SELECT -count(*) FROM dramatiq.queue",
    clock="observed",
)
