"""What every experiment is given."""

from dataclasses import dataclass

import psycopg

from example_project.benchmark.fleet import Fleet
from example_project.lab.plain_workers import PlainWorkers
from example_project.lab.plan import Plan
from example_project.lab.product import Product
from example_project.lab.progress import Progress


@dataclass(frozen=True)
class Laboratory:
    """The lab's schema, its workers and its plan."""

    url: str
    connection: psycopg.Connection
    """Autocommit, in the lab's schema, not counted among the workers."""
    fleet: Fleet
    plain: PlainWorkers
    product: Product
    plan: Plan
    progress: Progress
