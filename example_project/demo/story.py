"""What happens in the demo: documents are enqueued, a worker is killed in mid-job, everything finishes."""

import os
import signal
import time
from dataclasses import dataclass, field

from django.core.files.base import ContentFile

from example_project.demo.crew import Crew
from example_project.demo.display import Display
from example_project.demo.paper import Paper
from example_project.demo.questions import RUNNING, WAITING, Answer, BoardRow, ask, board
from example_project.documents.intake import receive

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 45.0
WORKERS = "workers"
WORKER_OPTIONS = {
    "processes": 2,
    "concurrency": 2,
    "lease-seconds": 5,
    "heartbeat-seconds": 0.5,
    "poll-seconds": 0.2,
    "grace-seconds": 5,
}


@dataclass
class Story:
    """What was enqueued and what was done to it."""

    papers: dict[int, Paper]
    """The file of each document, by the document's id."""
    killed_worker: str = ""
    killed_pid: int = 0
    jobs_at_kill: set[int] = field(default_factory=set)
    """Jobs that the killed worker was running."""
    answers: list[Answer] = field(default_factory=list)
    """To what is running, asked at the kill, and to what is waiting, asked when its jobs were given back."""
    stalled: bool = False
    """Nothing moved for so long that it was given up."""


def begin(papers: list[Paper], crew: Crew, display: Display) -> Story:
    """Enqueue all papers in one transaction and start the workers."""
    documents = receive([ContentFile(paper.content, name=paper.name) for paper in papers])
    display.note(f"{len(documents)} documents and their jobs committed in one transaction")
    options = [part for name, value in WORKER_OPTIONS.items() for part in (f"--{name}", str(value))]
    crew.start(WORKERS, "runworkers", *options)
    return Story(papers={document.pk: paper for document, paper in zip(documents, papers, strict=True)})


def play(story: Story, crew: Crew, display: Display) -> None:
    """Kill one worker in mid-job and watch until every job has ended, or nothing moves any more."""
    ids = list(story.papers)
    moved_at, before = time.monotonic(), None
    while True:
        crew.check()
        rows = board(ids)
        now = [(row.status, row.attempts, row.done) for row in rows]
        if now != before:
            moved_at, before = time.monotonic(), now
        if not story.killed_pid:
            _strike(story, rows, display)
        elif len(story.answers) == 1 and not _still_held(story, rows):
            _see_what_it_hit(story, rows, display)
        finished = all(row.finished for row in rows)
        story.stalled = time.monotonic() - moved_at > PATIENCE_SECONDS
        display.show(rows, last=finished or story.stalled)
        if finished or story.stalled:
            return
        time.sleep(LOOK_SECONDS)


def _strike(story: Story, rows: list[BoardRow], display: Display) -> None:
    """SIGKILL the worker that is in the middle of a document, if there is one now."""
    target = _in_the_middle(rows)
    if target is None or target.pid is None:
        return
    os.kill(target.pid, signal.SIGKILL)
    story.killed_worker, story.killed_pid = target.worker, target.pid
    story.jobs_at_kill = {row.job for row in rows if row.worker == target.worker and row.status == "running"}
    story.answers = [ask(RUNNING)]
    place = f"page {target.done} of {target.total} of " if target.total else ""
    display.note(f"SIGKILL to worker {target.worker} (pid {target.pid}) at {place}{target.title}")


def _in_the_middle(rows: list[BoardRow]) -> BoardRow | None:
    """A running document with a page read and the most left to read, so that the blow cannot come too late.

    When few documents are left and none is that long, any running one has to do.
    """
    running = [row for row in rows if row.status == "running" and row.pid]
    best = max(running, key=lambda row: (row.total or 0) - row.done, default=None)
    if best is None or (best.done >= 1 and (best.total or 0) - best.done >= 2):
        return best
    return best if sum(row.finished for row in rows) * 2 >= len(rows) else None


def _see_what_it_hit(story: Story, rows: list[BoardRow], display: Display) -> None:
    """Once the dead worker's jobs are given back: ask what waits. A blow that hit no job is struck again."""
    given_back = [row.title for row in rows if row.job in story.jobs_at_kill and row.crashes]
    if given_back:
        story.answers.append(ask(WAITING))
        display.note(f"given back by its supervisor: {', '.join(given_back)}")
    else:
        display.note("its jobs had just ended: the blow hit nothing and is struck again")
        story.killed_worker, story.killed_pid = "", 0


def _still_held(story: Story, rows: list[BoardRow]) -> bool:
    """Whether the dead worker's jobs still stand as running under its name."""
    return any(row.worker == story.killed_worker for row in rows)
