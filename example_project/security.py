"""A strict Content-Security-Policy: scripts, styles and pictures come from this site and from files only."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

POLICY = "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"


def content_security_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that sends :data:`POLICY` with each answer, Django's own pages for debugging aside."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if not (settings.DEBUG and response.status_code in (404, 500)):  # their styles are inline
            response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return middleware
