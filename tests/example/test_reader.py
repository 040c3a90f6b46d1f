"""Reading PDFs: what can be read is whole, and what cannot is refused in plain words."""

import io
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from example_project.demo.paper import write_pdf, write_picture_pdf
from example_project.documents.reader import PDF, UnreadablePDF

THREE_PAGES = write_pdf("Three pages", 3)


def texts(data: bytes) -> list[str]:
    pdf = PDF(data)
    return [pdf.text(number) for number in range(1, pdf.page_count + 1)]


def written_by_hand(objects: Sequence[bytes]) -> bytes:
    """A PDF of these objects, the first of which is its root."""
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    return (
        out
        + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<</Size %d /Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n"
        % (
            size,
            table,
            size,
            len(out),
        )
    )


def stream(data: bytes) -> bytes:
    return b"<</Length %d>>\nstream\n%s\nendstream" % (len(data), data)


def test_every_page_is_read_in_order() -> None:
    read = texts(THREE_PAGES)
    assert ["page 1 of 3" in read[0], "page 2 of 3" in read[1], "page 3 of 3" in read[2]] == [True] * 3


def test_pictures_have_no_text_and_are_no_error() -> None:
    assert texts(write_picture_pdf(2)) == ["", ""]


def test_a_password_against_editing_only_does_not_hinder_reading() -> None:
    buffer = io.BytesIO()
    canvas = Canvas(buffer, encrypt=StandardEncryption("", ownerPassword="owner", strength=128))
    canvas.drawString(72, 72, "open to readers")
    canvas.save()
    assert "open to readers" in texts(buffer.getvalue())[0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "The file is empty"),
        (b"Date,Amount\n2026-01-01,5\n", "This is not a PDF"),
        (b"\x00" * 5000, "This is not a PDF"),
        (b"%PDF-1.7\n", "The file is damaged or cut off"),
        (THREE_PAGES[:1500], "The file is damaged or cut off"),
        (THREE_PAGES[:-20], "The file is damaged or cut off"),
        (write_pdf("Secret", 1, password="not told"), "encrypted and needs a password"),
        (THREE_PAGES.replace(b"/Count 3", b"/Count 9"), "promises 9 pages and 3 were found"),
        (THREE_PAGES.replace(b"/FlateDecode", b"/FlotoDecode"), "page 1 of 3 cannot be read"),
        (THREE_PAGES.replace(b"/Contents 10 0 R", b"/Contents 99 0 R"), "page 2 of 3 cannot be read"),
    ],
    ids=[
        "empty",
        "csv",
        "zeros",
        "head only",
        "half",
        "no end",
        "encrypted",
        "count",
        "filter",
        "lost content",
    ],
)
def test_what_cannot_be_read_is_refused_in_plain_words(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadablePDF, match=reason):
        texts(data)


def test_text_that_postgresql_cannot_store_is_replaced() -> None:
    unicode_map = (
        b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <FF> endcodespacerange "
        b"3 beginbfchar <41> <0000> <42> <D800> <43> <0043> endbfchar endcmap end"
    )
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>"
    data = written_by_hand(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            page,
            stream(b"BT /F 12 Tf 72 700 Td (ABC) Tj ET"),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>",
            stream(unicode_map),
        ]
    )
    assert texts(data) == ["\ufffd\ufffdC"]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    cut=st.integers(0, len(THREE_PAGES)),
    noise=st.lists(st.tuples(st.integers(0, len(THREE_PAGES) - 1), st.integers(0, 255)), max_size=20),
)
@example(cut=len(THREE_PAGES), noise=[])
def test_damage_gives_text_or_a_sentence_and_nothing_else(cut: int, noise: list[tuple[int, int]]) -> None:
    data = bytearray(THREE_PAGES)
    for position, value in noise:
        data[position] = value
    try:
        read = texts(bytes(data[:cut]))
    except UnreadablePDF as error:
        assert str(error).endswith(".") and "\n" not in str(error)
    else:
        assert all("\x00" not in text for text in read)
        "".join(read).encode()
