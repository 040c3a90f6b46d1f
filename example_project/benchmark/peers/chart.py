"""Bars as inline SVG, and the style sheet of the page around them; light and dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 760, 150, 220
BAR, STEP = 16, 24
STYLE = """
:root { color-scheme: light dark; --ours: #2563c9; --other: #9aa4b2; }
@media (prefers-color-scheme: dark) { :root { --ours: #6ea8fe; --other: #5d6673; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 820px; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.05rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { font-weight: 600; } dd { margin: 0; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; } text { font-size: 13px; fill: currentColor; }
.ours { fill: var(--ours); } .other { fill: var(--other); }
"""


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    text: str
    ours: bool = False


def bars(rows: Sequence[Bar], title: str) -> str:
    """Horizontal, from 0, on a linear scale."""
    scale = (WIDTH - LEFT - RIGHT) / max([row.value for row in rows] + [1e-9])
    parts = []
    for index, row in enumerate(rows):
        y = index * STEP
        width = max(row.value * scale, 1)
        parts.append(f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end">{escape(row.label)}</text>')
        parts.append(
            f'<rect class="{"ours" if row.ours else "other"}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"/>'
        )
        parts.append(f'<text x="{LEFT + width + 7:.1f}" y="{y + 13}">{escape(row.text)}</text>')
    height = max(len(rows) * STEP, 1)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )
