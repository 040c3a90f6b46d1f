"""Runs a command with DATABASE_URL set to a PostgreSQL that ends with it.

For instance: python -m example_project.postgres python manage.py makemigrations --check
"""

from __future__ import annotations

import os
import subprocess
import sys

from example_project.postgres.binaries import PostgresUnavailable
from example_project.postgres.choice import database_url


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with database_url() as url:
            return subprocess.run(command, env={**os.environ, "DATABASE_URL": url}, check=False).returncode
    except PostgresUnavailable as reason:
        print(reason, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
