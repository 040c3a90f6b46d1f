"""A page with live regions whose server a test steers: tests/browser/test_refresher.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template import engines
from django.urls import path

PAGE = """{% load static %}{% if not fragment %}<!doctype html><html lang="en"><head><title>Probe</title>
<link rel="stylesheet" href="{% static "pgjobs/admin.css" %}"><script src="{% static "pgjobs/admin.js" %}"></script>
</head><body><nav aria-label="pgjobs"><a href="/admin/pgjobs/job/">Jobs</a></nav><main>{% endif %}
<div data-pgjobs-live data-url="?fragment=1" data-interval="{{ probe.interval }}">
<p data-pgjobs-status role="status"></p>
<button type="button" data-pgjobs-pause aria-pressed="false">Pause</button>
{% for name in names %}<section data-pgjobs-region="{{ name }}"><p>{{ name }} {{ probe.shown }}</p>
{% if name == "wide" %}<div class="pgjobs-scroll"><hr width="3000"></div>{% endif %}
{% if name == "links" %}<a href="#here">a link</a>{% endif %}
{% if name == "ticks" %}<label><input type="checkbox"> tick</label>{% endif %}
{% if name == "typed" %}<label>Search <input type="search"></label>{% endif %}
{% if name == "folds" %}<details><summary>Traceback</summary><p>deep inside</p></details>
<details open><summary>Payload</summary><p>open from the start</p></details>{% endif %}
{% if name == "table" %}<table class="pgjobs-table"><tbody>{% for n in "123" %}<tr><td><input type="checkbox"
aria-label="row {{ n }}"> <a href="#row{{ n }}">row {{ n }}</a></td></tr>{% endfor %}</tbody></table>{% endif %}
</section>{% endfor %}</div>
<button type="button" data-pgjobs-copy="{{ probe.copied }}">Copy</button>
{% if not fragment %}</main></body></html>{% endif %}"""


@dataclass
class Probe:
    """What the server answers, and how often it was asked."""

    count: int = 0
    shown: int = 0
    """The count that is on the page; as it was while ``still``."""
    still: bool = False
    answer: str = "page"
    interval: int = 5
    copied: str = "7"
    names: list[str] = field(
        default_factory=lambda: ["plain", "wide", "links", "ticks", "typed", "folds", "table"]
    )


probe = Probe()


def view(request: HttpRequest) -> HttpResponse:
    fragment = "fragment" in request.GET
    if fragment:
        probe.count += 1
        probe.shown = probe.shown if probe.still else probe.count
        if probe.answer == "login":
            return HttpResponseRedirect("/admin/login/")
        if probe.answer != "page":
            return HttpResponse("no", status=int(probe.answer))
    template = engines["django"].from_string(PAGE)
    context: dict[str, Any] = {"probe": probe, "fragment": fragment, "names": probe.names}
    return HttpResponse(template.render(context, request))


urlpatterns = [path("probe/", view), path("admin/pgjobs/job/", view)]
