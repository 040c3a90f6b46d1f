from example_project.benchmark.peers.entrant import Entrant

OBAN = Entrant(
    name="oban",
    packages=("oban",),
    settings=(
        "embedded, `Oban(pool=..., queues=...)` on uvloop (its quick start), async workers",
        "the open package; bulk acknowledgement belongs to its licensed one",
        "bulk: enqueue_many",
    ),
    python=(3, 12),
    unfinished="""
        SELECT EXISTS (SELECT FROM oban_jobs
                       WHERE state::text IN ('available', 'scheduled', 'executing', 'retryable', 'suspended'))""",
    succeeded="SELECT count(*) FROM oban_jobs WHERE state = 'completed' AND attempt = 1",
    span="SELECT extract(epoch FROM max(completed_at) - min(attempted_at))::float8 FROM oban_jobs",
)
