"""Charts as inline SVG: attributes and classes alone, so that the strictest content policy lets them through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as counter
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from pgjobs.admin.pages import trusted

WIDTH, HEIGHT = 600, 120
_BASE = 104
_LINES = ("pgjobs-ok", "pgjobs-wait", "pgjobs-bad")
_numbers = counter(1)


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of time: what went well and what did not."""

    label: str
    ok: float
    bad: float = 0
    mark: str = ""
    """What happened then: a line across the chart, which says so. The label says it too, for the table."""


def bars(
    title: str, told: str, points: Sequence[Bar], columns: tuple[str, str] = ("done", "failed")
) -> SafeString:
    """Stacked bars; failures are hatched too, so that colour is never the only sign. What has no name is left out."""
    most = max((point.ok + point.bad for point in points), default=0) or 1
    step = WIDTH / max(len(points), 1)
    pattern = f"pgjobs-hatch-{next(_numbers) % 1_000_000}"
    drawn = [
        f'<defs><pattern id="{pattern}" width="4" height="4" patternUnits="userSpaceOnUse">'
        '<path class="pgjobs-hatch" d="M0 4 L4 0" stroke-width="1"/></pattern></defs>'
    ]
    for number, point in enumerate(points):
        x, wide = number * step, max(step - 1, 0.5)
        good, bad = point.ok / most * _BASE, point.bad / most * _BASE
        if good:
            drawn.append(_rect("pgjobs-ok", x, _BASE - good, wide, good))
        if bad:
            top = _BASE - good - bad
            drawn.append(_rect("pgjobs-bad", x, top, wide, bad))
            drawn.append(_rect("", x, top, wide, bad, f' fill="url(#{pattern})"'))
        if point.mark:
            drawn.append(_mark(x, point.mark))
    axis = _axis([point.label for point in points])
    shown = [place for place, name in enumerate(columns) if name]
    tones = {columns[place]: ("pgjobs-ok", "pgjobs-bad")[place] for place in shown}
    rows = [(each.label, *(_number((each.ok, each.bad)[place]) for place in shown)) for each in points]
    return _chart(title, told, "".join(drawn) + axis, tones, rows)


def failures(title: str, told: str, points: Sequence[Bar]) -> SafeString:
    """Bars of failures alone, hatched."""
    return bars(title, told, points, ("", "failures"))


def histogram(title: str, told: str, counts: Sequence[tuple[str, int]], column: str) -> SafeString:
    """Bars without a second part; a label says up to where each reaches."""
    most = max((number for _, number in counts), default=0) or 1
    step = WIDTH / max(len(counts), 1)
    drawn = [
        _rect("pgjobs-ok", place * step, _BASE - number / most * _BASE, step - 2, number / most * _BASE)
        for place, (_, number) in enumerate(counts)
        if number
    ]
    rows = [(label, f"{number:,}") for label, number in counts]
    axis = _axis([label for label, _ in counts])
    return _chart(title, told, "".join(drawn) + axis, {column: "pgjobs-ok"}, rows, first="up to")


def lines(
    title: str, told: str, labels: Sequence[str], series: dict[str, Sequence[float | None]]
) -> SafeString:
    """One line per name, on a common scale; a gap where nothing is known."""
    known = [value for values in series.values() for value in values if value is not None]
    most = max(known, default=0) or 1
    step = WIDTH / max(len(labels) - 1, 1)
    drawn = []
    for name, values in zip(_LINES, series.values(), strict=False):
        path, pen = [], "M"
        for number, value in enumerate(values):
            if value is None:
                pen = "M"
                continue
            path.append(f"{pen}{number * step:.1f} {_BASE - value / most * (_BASE - 4):.1f}")
            pen = "L"
        drawn.append(f'<path class="pgjobs-line {name}" fill="none" stroke-width="2" d="{" ".join(path)}"/>')
    rows = [
        (label, *(_number(values[number]) for values in series.values()))
        for number, label in enumerate(labels)
    ]
    return _chart(title, told, "".join(drawn) + _axis(labels), dict(zip(series, _LINES, strict=False)), rows)


def sparkline(title: str, values: Sequence[float], kind: str = "ok") -> SafeString:
    """A row of thin bars without axes, for a cell of a table."""
    most = max(values, default=0) or 1
    drawn = "".join(
        _rect(f"pgjobs-{kind}", number * 5, 20 - value / most * 20, 4, value / most * 20)
        for number, value in enumerate(values)
        if value
    )
    return format_html(
        '<svg class="pgjobs-spark" role="img" width="{}" height="20" viewBox="0 0 {} 20"><title>{}</title>{}</svg>',
        len(values) * 5,
        len(values) * 5,
        title,
        trusted(drawn),
    )


def gauge(share: float, title: str, kind: str = "ok") -> SafeString:
    """A bar that is filled to ``share`` (0 to 1)."""
    filled = max(0.0, min(share, 1.0)) * 60
    return format_html(
        '<svg class="pgjobs-gauge" role="img" width="60" height="10" viewBox="0 0 60 10"><title>{}</title>{}</svg>',
        title,
        trusted(_rect("pgjobs-muted", 0, 0, 60, 10) + _rect(f"pgjobs-{kind}", 0, 0, filled, 10)),
    )


def _rect(kind: str, x: float, y: float, width: float, height: float, more: str = "") -> str:
    classed = f' class="{kind}"' if kind else ""
    return f'<rect{classed} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{more}/>'


def _mark(x: float, text: str) -> str:
    return format_html(
        '<path class="pgjobs-event" d="M{} 0 V{}" stroke-width="2" stroke-dasharray="4 2"><title>{}</title></path>',
        f"{x:.1f}",
        _BASE,
        text,
    )


def _axis(labels: Sequence[str]) -> str:
    line = f'<path class="pgjobs-axis" d="M0 {_BASE} H{WIDTH}" stroke-width="1"/>'
    if not labels:
        return line
    first = format_html('<text class="pgjobs-label" x="0" y="117" font-size="11">{}</text>', labels[0])
    last = format_html(
        '<text class="pgjobs-label" x="{}" y="117" font-size="11" text-anchor="end">{}</text>',
        WIDTH,
        labels[-1],
    )
    return f"{line}{first}{last}"


def _chart(
    title: str,
    told: str,
    drawn: str,
    tones: dict[str, str],
    rows: Sequence[Sequence[Any]],
    first: str = "at",
) -> SafeString:
    """``tones`` are the classes of what is drawn, by name, in the order of the columns of ``rows`` after the first."""
    number = next(_numbers) % 1_000_000
    head = format_html_join("", '<th scope="col">{}</th>', ((name,) for name in (first, *tones)))
    legend = format_html_join(" ", '<span class="pgjobs-legend {}">{}</span>', ((tones[n], n) for n in tones))
    body = format_html_join(
        "",
        '<tr><th scope="row">{}</th>{}</tr>',
        ((row[0], format_html_join("", "<td>{}</td>", ((cell,) for cell in row[1:]))) for row in rows),
    )
    return format_html(
        '<figure class="pgjobs-chart"><figcaption>{title} {legend}</figcaption>'
        '<svg role="img" aria-labelledby="pgjobs-t{n} pgjobs-d{n}" viewBox="0 0 {w} {h}" width="{w}" height="{h}">'
        '<title id="pgjobs-t{n}">{title}</title><desc id="pgjobs-d{n}">{told}</desc>{drawn}</svg>'
        '<p class="pgjobs-told">{told}</p><details><summary>Show as table</summary>'
        '<table class="pgjobs-table"><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></details></figure>",
        n=number,
        w=WIDTH,
        h=HEIGHT,
        title=title,
        told=told,
        legend=legend,
        drawn=trusted(drawn),
        head=head,
        body=body,
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
