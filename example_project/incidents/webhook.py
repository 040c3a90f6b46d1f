"""GitHub's deliveries: signed, bounded, understood, and answered once the incident is committed."""

from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from example_project.incidents import conf
from example_project.incidents.deliveries import BadDelivery, parse, understand
from example_project.incidents.intake import take
from example_project.incidents.signature import is_signed

LONGEST_DELIVERY_ID = 100


# Exempt from CSRF: that protects people whose browser sends their cookies along. GitHub has no cookie and no page
# to take a token from; who it is, the signature tells, which no other site can make.
@csrf_exempt
@require_POST
def github(request: HttpRequest) -> JsonResponse:
    """Take a delivery. Nothing of the body is looked at before its signature holds."""
    secret = conf.webhook_secret()
    if not secret:
        return _refuse(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "INCIDENTS_WEBHOOK_SECRET is not set, so no delivery can be told from a forged one. Set it to the "
            "secret of the webhook.",
        )
    body = _body(request)
    if body is None:
        cap = conf.webhook_max_bytes()
        return _refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The limit is {cap:,} bytes.")
    if not is_signed(body, request.headers.get("X-Hub-Signature-256", ""), secret):
        return _refuse(
            HTTPStatus.FORBIDDEN,
            "X-Hub-Signature-256 is missing or not this body's. Check the webhook's secret.",
        )
    if request.content_type != "application/json":
        return _refuse(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Set the webhook's content type to application/json."
        )
    try:
        return _take(request, parse(body, max_bytes=conf.webhook_max_bytes()))
    except BadDelivery as error:
        return _refuse(HTTPStatus.BAD_REQUEST, str(error))


def _body(request: HttpRequest) -> bytes | None:
    """The body; None when it is too large, which is known before it is read."""
    cap = conf.webhook_max_bytes()
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdecimal() and int(length) > cap:
        return None
    try:
        body = request.body
    except RequestDataTooBig:
        return None
    return body if len(body) <= cap else None


def _take(request: HttpRequest, payload: dict[str, Any]) -> JsonResponse:
    event, delivery = request.headers.get("X-GitHub-Event", ""), request.headers.get("X-GitHub-Delivery", "")
    if not event or not 0 < len(delivery) <= LONGEST_DELIVERY_ID:
        raise BadDelivery("X-GitHub-Event and X-GitHub-Delivery must say what this is and which delivery.")
    report = understand(event, payload)
    if report is None:
        return JsonResponse({"ignored": f"The event {event} is not watched."})
    if not report.failed:
        return JsonResponse({"ignored": f"{report.kind} is no failure: {report.outcome}."})
    incident, created = take(report, delivery=delivery, payload=payload)
    told = {"incident": incident.pk, "execution": incident.execution_id, "started": created}
    return JsonResponse(told, status=HTTPStatus.ACCEPTED if created else HTTPStatus.OK)


def _refuse(status: HTTPStatus, why: str) -> JsonResponse:
    return JsonResponse({"error": why}, status=status)
