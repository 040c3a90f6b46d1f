"""Deliveries as GitHub sends them, and the tests' way to send them."""

import json
from pathlib import Path
from typing import Any

from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from example_project.incidents.deliveries import Report
from example_project.incidents.intake import take
from example_project.incidents.models import Incident
from example_project.incidents.signature import sign

SECRET = "the webhook's secret"
REAL_BODIES = Path(__file__).resolve().parents[3] / "shared" / "data" / "webhooks"


def body(event: str, outcome: str) -> dict[str, Any]:
    """The least of a body that the event has."""
    repository = {"repository": {"full_name": "example/shop"}}
    if event in ("check_run", "check_suite"):
        check = {"conclusion": outcome, "head_sha": "c0ffee" * 6}
        check |= {"name": "tests"} if event == "check_run" else {"app": {"name": "CI"}}
        return {"action": "completed", event: check, **repository}
    if event == "deployment_status":
        deployment = {"sha": "c0ffee" * 6, "environment": "production"}
        return {
            "action": "created",
            "deployment_status": {"state": outcome},
            "deployment": deployment,
            **repository,
        }
    return {"state": outcome, "sha": "c0ffee" * 6, "context": "ci/build", **repository}


def send(
    client: Client,
    content: dict[str, Any] | bytes,
    event: str = "check_run",
    *,
    delivery: str = "one",
    signed_with: str | None = SECRET,
    signature: str | None = None,
    **more: Any,
) -> HttpResponse:
    """Post a delivery; ``signature`` wins over ``signed_with``, and None leaves the header out."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    if signature is None and signed_with is not None:
        signature = sign(raw, signed_with)
    headers = {"X-GitHub-Event": event, "X-GitHub-Delivery": delivery, "X-Hub-Signature-256": signature}
    given = {name: value for name, value in headers.items() if value}
    more = {"content_type": "application/json"} | more
    return client.post(reverse("incidents:webhook"), data=raw, headers=given, **more)


def incident(delivery: str = "one", outcome: str = "failure", **more: Any) -> Incident:
    """An incident with its execution, as if it had been delivered."""
    report = Report("check_run", "example/shop", f"tests: {outcome}", outcome, True, "c0ffee" * 6)
    made, _ = take(report, delivery=delivery, payload=body("check_run", outcome), **more)
    return made
