"""The demo from curtain to curtain: server, schema, web pages, story, report; then all is cleared away."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from django.core.management import call_command

from example_project.benchmark.unwinding import signals_unwind
from example_project.demo import incident_report, incident_story, report, serving, story
from example_project.demo.crew import Crew
from example_project.demo.display import Display
from example_project.demo.paper import found_papers, made_papers
from example_project.demo.target import pointed_at
from example_project.postgres import EmbeddedPostgres

WATCH_SECONDS = 0.5


@dataclass(frozen=True)
class Plan:
    """What was asked for on the command line."""

    folder: Path | None
    """PDFs to use instead of made ones."""
    database_url: str | None
    """A database to use instead of a server of the demo's own."""
    page_delay: float
    """Seconds added to each page."""
    port: int | None
    """Serve web pages here until Ctrl-C; None to end after the report."""


def perform(plan: Plan, display: Display) -> list[str]:
    """Run the demo and return what went against the promise: nothing, if all is well.

    Raises PostgresUnavailable and DemoError; SystemExit when a signal ends it.
    """
    papers = list(found_papers(plan.folder) if plan.folder else made_papers())
    with signals_unwind(), ExitStack() as stack:
        # The crew leaves last of all but the server, which its processes use to the end.
        url = plan.database_url or _own_server(stack, display)
        crew = stack.enter_context(Crew())
        stack.enter_context(pointed_at(url, crew.folder / "media", page_delay=plan.page_delay))
        stack.enter_context(incident_story.incidents_in_a_hurry())
        call_command("migrate", verbosity=0, interactive=False)
        display.note("database migrated")
        welcome = _open_web(crew, plan.port) if plan.port is not None else ""
        if welcome:
            display.note(welcome)
        played = story.begin(papers, crew, display)
        story.play(played, crew, display)
        if played.stalled:
            display.note(
                f"nothing moves any more. The end of the workers' log:\n{crew.log_tail(story.WORKERS)}"
            )
        else:
            display.note("every job has ended")
        report.print_report(played, display)
        problems = report.problems(played) or _incidents(crew, display)
        if not problems:
            display.text()
            display.text(
                f"Nothing was lost and no page is stored twice; no recorded step ran again "
                f"({display.seconds:.0f} s)."
            )
            if welcome:
                display.text(f"{welcome}\n{incident_story.leave_one_open()!r} waits for your decision.")
                display.text("The workers run on: upload something. Ctrl-C ends everything.")
                _stay(crew, display)
        return problems


def _incidents(crew: Crew, display: Display) -> list[str]:
    """The second act, on the same workers."""
    played = incident_story.play(crew, display)
    incident_report.print_incidents(played, display)
    return incident_report.incident_problems(played)


def _own_server(stack: ExitStack, display: Display) -> str:
    server = stack.enter_context(EmbeddedPostgres(durable=True))
    display.note("PostgreSQL started, with its durable settings on")
    return server.url


def _open_web(crew: Crew, port: int) -> str:
    password = serving.make_login()
    address = serving.start_web(crew, port)
    pages = f"Documents: {address}   Incidents: {address}incidents/   Admin: {address}admin/"
    return f"{pages}   Login: {serving.LOGIN}   Password: {password}"


def _stay(crew: Crew, display: Display) -> None:
    """Until a signal comes, which is the ordinary end. Raises ChildFailed when a child ends by itself."""
    try:
        while True:
            crew.check()
            time.sleep(WATCH_SECONDS)
    except SystemExit:
        display.text("Ending everything.")
