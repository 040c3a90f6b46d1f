"""The app of the benchmark. It has no tables: it works on pgjobs' own, in a schema made for it."""

import os

from django.apps import AppConfig

from example_project.benchmark import claim_clock


class BenchmarkConfig(AppConfig):
    name = "example_project.benchmark"
    label = "benchmark"

    def ready(self) -> None:
        if path := os.environ.get(claim_clock.VARIABLE):
            claim_clock.install(path)
