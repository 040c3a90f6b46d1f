"""From an empty database to pictures: server, schema, web pages, a bad night, a camera; then all is cleared away."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from django.core.management import call_command

from example_project.demo import serving
from example_project.demo.crew import Crew, DemoError
from example_project.demo.incident_story import incidents_in_a_hurry
from example_project.demo.target import pointed_at
from example_project.postgres import EmbeddedPostgres
from example_project.screenshots import camera, shots
from example_project.screenshots.night import Night

PAGE_SECONDS = 3.0
VERSION = "v141"
"""Of the code, as the processes of the night report it."""


def perform(
    folder: Path, *, only: frozenset[str], port: int, database_url: str | None, tell: Callable[[str], object]
) -> list[Path]:
    """Make the pictures and return their paths. Raises DemoError and PostgresUnavailable."""
    with ExitStack() as stack:
        url = database_url or stack.enter_context(EmbeddedPostgres(durable=False)).url
        crew = stack.enter_context(Crew())
        stack.enter_context(pointed_at(url, crew.folder / "media", page_delay=PAGE_SECONDS))
        stack.enter_context(incidents_in_a_hurry())
        os.environ["PGJOBS_CODE_VERSION"] = VERSION
        stack.callback(os.environ.pop, "PGJOBS_CODE_VERSION")
        call_command("migrate", verbosity=0, interactive=False)
        password = serving.make_login()
        address = serving.start_web(crew, port)
        tell(f"web pages at {address}; the night begins")
        night = Night(crew)
        night.pass_()
        wanted = shots.of(night)
        if unknown := only - {shot.name for shot in wanted}:
            known = ", ".join(shot.name for shot in wanted)
            raise DemoError(f"--only names {', '.join(sorted(unknown))}; it can name {known}.")
        chosen = [shot for shot in wanted if not only or shot.name in only]
        crew.check()
        tell(f"taking {len(chosen) * len(camera.SCHEMES)} pictures")
        try:
            return camera.take(chosen, address, (serving.LOGIN, password), folder)
        except DemoError as error:
            raise DemoError(
                f"{error}\nThe end of the web server's log:\n{crew.log_tail(serving.WEB)}"
            ) from error
