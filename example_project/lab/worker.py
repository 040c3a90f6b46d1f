"""``python -m example_project.lab.worker URL NAME``: one plain worker, told by lines of JSON what to run.

Light on purpose, without Django: sixteen of them share two cores. It ends when its input does.
"""

import json
import os
import sys
import threading
import time

import psycopg

from example_project.lab import table
from example_project.lab.strategies import load


def main(url: str, name: str) -> None:
    orders: list[str] = []
    arrived = threading.Condition()
    threading.Thread(target=_read, args=(orders, arrived), daemon=True).start()
    with psycopg.connect(url, autocommit=True) as connection:
        _tell("ready")
        while True:
            with arrived:
                arrived.wait_for(lambda: orders)
            order = json.loads(orders.pop(0))
            work(connection, name, order["strategy"], order["milliseconds"])
            _tell("done")


def work(connection: psycopg.Connection, name: str, strategy_name: str, milliseconds: float) -> None:
    """Claim, work and settle until nothing is left; then write down what was handed out."""
    strategy = load(strategy_name)
    log: list[tuple[object, ...]] = []
    while True:
        began = time.perf_counter()
        claimed = strategy.claim(connection, name)
        latency = (time.perf_counter() - began) * 1000
        if claimed is None:
            break
        job, at = claimed
        log.append((job, name, at, latency))
        time.sleep(milliseconds / 1000)
        strategy.settle(connection, name, job)
    # Only now: a log written on the way would be part of what is timed.
    table.write_log(connection, log)


def _read(orders: list[str], arrived: threading.Condition) -> None:
    for line in sys.stdin:
        with arrived:
            orders.append(line)
            arrived.notify()
    os._exit(0)  # whoever gave orders is gone, in mid-work too


def _tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
