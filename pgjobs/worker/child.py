"""``python -m pgjobs.worker.child``: a fresh interpreter for one worker process. Started by the supervisor only."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Run one worker process. Arguments: options as JSON, file descriptors of lifeline, ledger and news."""
    import django

    django.setup()
    from pgjobs.worker import memory
    from pgjobs.worker.options import WorkerOptions
    from pgjobs.worker.process import WorkerProcess

    memory.give_back()
    options_json, *descriptors = arguments
    return WorkerProcess(WorkerOptions.from_json(options_json), *map(int, descriptors)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
