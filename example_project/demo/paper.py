"""The demo's documents: a dozen good PDFs and three bad ones, made with reportlab."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

LINE_HEIGHT = 18  # points
MARGIN = 72  # points
SUBJECTS = [
    ("invoice-2026-000412", 3, "Invoice 2026-000412, Alder & Sons Ltd, net 30 days"),
    ("lease-agreement", 6, "Lease of the premises at 14 Quay Street"),
    ("incident-report-july", 4, "Incident report: the checkout was slow for 41 minutes"),
    ("board-minutes", 5, "Minutes of the board meeting"),
    ("shipping-manifest", 3, "Manifest of vessel MV Corriente"),
    ("lab-results", 4, "Results of water samples, station 7"),
    ("insurance-policy", 6, "Policy 88-1204, general terms"),
    ("patent-draft", 5, "Apparatus for folding maps"),
    ("expense-claims", 3, "Claims of the second quarter"),
    ("user-manual", 6, "Manual of the pump, model P3"),
    ("court-filing", 4, "Statement of defence"),
]


@dataclass(frozen=True)
class Paper:
    """A file to upload, and how many pages must be read from it: 0 if it must fail, None if nobody knows."""

    name: str
    content: bytes
    pages: int | None


def write_pdf(title: str, pages: int, *, password: str | None = None) -> bytes:
    """A PDF with ``pages`` pages of text; with ``password`` nobody can read it without."""
    encryption = StandardEncryption(password, strength=128) if password else None
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4, encrypt=encryption, invariant=1)
    canvas.setTitle(title)
    for number in range(1, pages + 1):
        canvas.drawString(MARGIN, A4[1] - MARGIN, f"{title} (page {number} of {pages})")
        for line in range(1, 31):
            amount = number * line * 37 % 997
            text = f"{number}.{line}  Item {number * 100 + line}: amount {amount}.50, approved."
            canvas.drawString(MARGIN, A4[1] - MARGIN - (line + 1) * LINE_HEIGHT, text)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def write_picture_pdf(pages: int) -> bytes:
    """A PDF like a scan: shapes on every page and not one letter."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4, invariant=1)
    for number in range(1, pages + 1):
        canvas.setFillGray(0.4 + number / 10)
        canvas.rect(MARGIN, MARGIN, A4[0] - 2 * MARGIN, A4[1] - 2 * MARGIN, fill=1)
        canvas.circle(A4[0] / 2, A4[1] / 2, 40 * number)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def made_papers() -> Iterator[Paper]:
    """The bad ones stand in the middle, so that they run beside good ones."""
    for index, (name, pages, title) in enumerate(SUBJECTS):
        if index == len(SUBJECTS) // 2:
            yield Paper("scan-without-text.pdf", write_picture_pdf(2), 2)
            yield Paper("encrypted.pdf", write_pdf("Payroll", 2, password="not-told"), 0)
            yield Paper("empty.pdf", b"", 0)
            yield Paper("broken.pdf", write_pdf("Torn in half", 3)[:1500], 0)
        yield Paper(f"{name}.pdf", write_pdf(title, pages), pages)


def found_papers(folder: Path) -> Iterator[Paper]:
    """The PDFs of a folder, by name."""
    for path in sorted(folder.glob("*.[pP][dD][fF]")):
        yield Paper(path.name, path.read_bytes(), None)
