"""How a failure becomes an incident: row and execution in one transaction."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from example_project.documents.models import Document
from example_project.incidents import conf
from example_project.incidents.deliveries import Report
from example_project.incidents.models import Incident
from example_project.incidents.workflows import respond


def take(
    report: Report,
    *,
    delivery: str,
    payload: dict[str, Any],
    documents: Iterable[Document] = (),
    four_eyes: bool = False,
    actor: Any = None,
) -> tuple[Incident, bool]:
    """The incident of this delivery, and whether it is new. A redelivery finds what the first one made.

    Two at once: the unique delivery makes the second wait for the first one's commit. The execution's key would
    keep a second execution out even if the incident's row had been deleted in between.
    """
    with transaction.atomic():
        incident, created = Incident.objects.get_or_create(
            delivery=delivery,
            defaults={
                "kind": report.kind,
                "repository": report.repository,
                "title": report.title,
                "outcome": report.outcome,
                "commit": report.commit,
                "payload": payload,
            },
        )
        if created:
            incident.documents.set([*documents, *runbooks(report.repository)])
            incident.execution = respond.start(
                incident_id=incident.pk,
                approval_seconds=conf.approval_seconds(),
                cool_down_seconds=conf.cool_down_seconds(),
                four_eyes=four_eyes,
                key=f"delivery:{delivery}",
                subject=incident,
                actor=actor,
            )
            incident.save(update_fields=["execution"])
    return incident, created


def runbooks(repository: str) -> list[Document]:
    """The newest uploaded documents that are named after the repository: ``hello-world-runbook.pdf``."""
    name = repository.rpartition("/")[2]
    return list(Document.objects.filter(title__istartswith=f"{name}-runbook").order_by("-pk")[:5])
