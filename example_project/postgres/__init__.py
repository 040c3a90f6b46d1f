"""A PostgreSQL server of one's own, for the demo and the tests: started from binaries, gone with its parent.

Works as root (the server then runs under another account), listens on a unix socket in a private folder only,
and needs nothing but the `initdb` and `postgres` programs.
"""

from example_project.postgres.binaries import PostgresUnavailable, find_binaries
from example_project.postgres.choice import database_url
from example_project.postgres.server import EmbeddedPostgres, StopMode

__all__ = ["EmbeddedPostgres", "PostgresUnavailable", "StopMode", "database_url", "find_binaries"]
