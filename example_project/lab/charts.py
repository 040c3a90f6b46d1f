"""Charts as inline SVG. Colours come from the page's style sheet, so that light and dark both work."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from django.utils.safestring import SafeString, mark_safe

WIDTH = 760
LEFT = 210  # room for the labels of bars
BAR_HEIGHT, BAR_STEP = 16, 24
PLOT_LEFT, PLOT_TOP, PLOT_HEIGHT = 60, 34, 240


@dataclass(frozen=True)
class Line:
    """One curve: its name, its class of colour, its points by column, None where there is none."""

    name: str
    colour: str
    values: Sequence[float | None]
    dashed: bool = False


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    text: str
    colour: str


@dataclass(frozen=True)
class Segment:
    """A piece of a lane, from and to in seconds."""

    begin: float
    end: float
    colour: str
    title: str


def lines(columns: Sequence[str], curves: Sequence[Line], x_title: str, y_title: str) -> SafeString:
    """Curves over evenly spaced columns, from 0."""
    top = _round_up(max((v for curve in curves for v in curve.values if v is not None), default=1))
    step = (WIDTH - PLOT_LEFT - 30) / max(len(columns) - 1, 1)

    def x(column: int) -> float:
        return PLOT_LEFT + column * step

    def y(value: float) -> float:
        return PLOT_TOP + PLOT_HEIGHT * (1 - value / top)

    parts = []
    for tick in range(5):
        value = top * tick / 4
        parts.append(f'<path class="grid" d="M{PLOT_LEFT} {y(value):.1f}H{WIDTH - 30}"/>')
        parts.append(_text(PLOT_LEFT - 8, y(value) + 4, f"{value:g}", anchor="end"))
    for index, column in enumerate(columns):
        parts.append(_text(x(index), PLOT_TOP + PLOT_HEIGHT + 18, column, anchor="middle"))
    parts.append(_text(WIDTH - 30, PLOT_TOP + PLOT_HEIGHT + 36, x_title, anchor="end"))
    parts.append(_text(0, 12, y_title))
    for number, curve in enumerate(curves):
        points = [(x(i), y(v)) for i, v in enumerate(curve.values) if v is not None]
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        dashes = ' stroke-dasharray="5 4"' if curve.dashed else ""
        parts.append(f'<path class="curve {curve.colour}" d="M{path}"{dashes}/>')
        parts += [
            f'<circle class="dot {curve.colour}" cx="{px:.1f}" cy="{py:.1f}" r="3"/>' for px, py in points
        ]
        at = PLOT_LEFT + 110 * number
        parts.append(
            f'<path class="curve {curve.colour}" d="M{at} 26h18"{dashes}/>{_text(at + 23, 30, curve.name)}'
        )
    return _svg(PLOT_TOP + PLOT_HEIGHT + 44, parts, f"{y_title} by {x_title}")


def bars(
    rows: Sequence[Bar], title: str, reference: float | None = None, reference_name: str = ""
) -> SafeString:
    """Horizontal bars from 0, and perhaps a line that shows what would be right."""
    most = max([*(row.value for row in rows), reference or 0, 1e-9])
    scale = (WIDTH - LEFT - 110) / most
    parts = []
    for index, row in enumerate(rows):
        y = 22 + index * BAR_STEP
        parts.append(_text(LEFT - 10, y + 12, row.label, anchor="end"))
        width = max(row.value * scale, 1)
        parts.append(
            f'<rect class="bar {row.colour}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
        )
        parts.append(_text(LEFT + width + 7, y + 12, row.text))
    height = 26 + len(rows) * BAR_STEP
    if reference is not None:
        x = LEFT + reference * scale
        parts.append(f'<path class="reference" d="M{x:.1f} 18V{height - 6}"/>')
        parts.append(_text(x, 12, reference_name, anchor="middle"))
    return _svg(height, parts, title)


def lanes(
    rows: Sequence[tuple[str, Sequence[Segment]]],
    events: Sequence[tuple[float, str]],
    seconds: float,
    title: str,
) -> SafeString:
    """One lane of time for each row, and the events across all of them."""
    scale = (WIDTH - LEFT / 2 - 20) / max(seconds, 1e-9)
    left, top, step = LEFT / 2, 22 + 15 * len(events), 34
    height = top + step * len(rows) + 26
    parts = []
    for index, (label, segments) in enumerate(rows):
        y = top + index * step
        parts.append(_text(left - 10, y + 16, label, anchor="end"))
        for segment in segments:
            width = max((segment.end - segment.begin) * scale, 0.5)
            parts.append(
                f'<rect class="bar {segment.colour}" x="{left + segment.begin * scale:.1f}" y="{y}" '
                f'width="{width:.1f}" height="22"><title>{escape(segment.title)}</title></rect>'
            )
    for number, (at, text) in enumerate(events):
        x, y = left + at * scale, 14 + 15 * number
        anchor = "end" if x > WIDTH * 0.6 else "start"
        parts.append(f'<path class="reference" d="M{x:.1f} {y + 3}V{height - 24}"/>')
        parts.append(_text(x + (-4 if anchor == "end" else 4), y, text, anchor=anchor))
    ticks = max(int(seconds // 8), 1)
    for at in range(0, int(seconds) + 1, ticks):
        parts.append(_text(left + at * scale, height - 6, f"{at} s", anchor="middle"))
    return _svg(height, parts, title)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: float, parts: Sequence[str], title: str) -> SafeString:
    body = "".join(parts)
    # Every text has been escaped where it was put in.
    return mark_safe(
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">{body}</svg>'
    )


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10 times a power of ten, so that quarters are readable."""
    magnitude = 10.0 ** (len(str(int(max(value, 1)))) - 1)
    return next(step * magnitude for step in (1, 2, 4, 6, 8, 10) if step * magnitude >= value)
