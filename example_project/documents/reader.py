"""Bytes of a PDF to the text of its pages; whatever is wrong with them becomes one plain sentence.

A document is whole or refused: a file of which one page cannot be read fails, because half a contract that
looks complete does more harm than none. Damage that loses no page (a bad cross-reference table) is repaired.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class UnreadablePDF(Exception):
    """These bytes can never be read. The message is for the person who uploaded them."""


class PDF:
    """An opened document. Raises :class:`UnreadablePDF` on opening and on reading."""

    def __init__(self, data: bytes) -> None:
        if not data:
            raise UnreadablePDF("The file is empty (0 bytes). Upload it again.")
        # pypdf goes on without the first line of a PDF and then ends in an error that nobody understands.
        if b"%PDF-" not in data[:1024]:
            raise UnreadablePDF("This is not a PDF: it does not begin like one. Upload a PDF.")
        from pypdf import PdfReader  # 9 MB that web processes and idle workers need not carry

        with _plainly("The file is damaged or cut off: its pages cannot be found"):
            self._reader = PdfReader(io.BytesIO(data))
            if self._reader.is_encrypted:
                # Many files carry a password against editing only and open with the empty one.
                self._reader.decrypt("")
            self.page_count = len(self._reader.pages)
            tree: Any = self._reader.root_object["/Pages"]
            promised = int(tree.get("/Count", self.page_count))
        if promised > self.page_count:
            raise UnreadablePDF(
                f"The file is damaged: it promises {promised} pages and {self.page_count} were found."
            )
        if not self.page_count:
            raise UnreadablePDF("The file has no pages.")

    def text(self, number: int) -> str:
        """The text of page ``number`` (from 1), storable in PostgreSQL; empty where the page is a picture."""
        damaged = f"The file is damaged: page {number} of {self.page_count} cannot be read"
        with _plainly(damaged):
            page = self._reader.pages[number - 1]
            if "/Contents" in page and page.get_contents() is None:
                # pypdf takes a page whose content is lost for an empty one.
                raise UnreadablePDF(f"{damaged}: its content is missing.")
            text = page.extract_text()
        return _UNSTORABLE.sub("\ufffd", text)


@contextmanager
def _plainly(what: str) -> Iterator[None]:
    """Say ``what`` went wrong in place of pypdf's own error.

    The bytes are in memory, so every error here is the file's and would come again: pypdf says itself that
    broken files raise anything (KeyError, RecursionError). MemoryError is the machine's: it passes.
    """
    from pypdf.errors import DependencyError, EmptyFileError, FileNotDecryptedError, LimitReachedError

    try:
        yield
    except UnreadablePDF:
        raise
    except MemoryError:
        raise
    except EmptyFileError as error:
        raise UnreadablePDF("The file is empty. Upload it again.") from error
    except FileNotDecryptedError as error:
        raise UnreadablePDF(
            "The file is encrypted and needs a password. Upload a copy without a password."
        ) from error
    except DependencyError as error:
        raise UnreadablePDF(
            f"The file needs a library that is not installed here ({error}). Install it and retry the job."
        ) from error
    except LimitReachedError as error:
        raise UnreadablePDF(f"The file unpacks to more than is allowed ({error}).") from error
    except Exception as error:
        detail = str(error).strip().rstrip(".") or "no detail"
        raise UnreadablePDF(f"{what} ({type(error).__name__}: {detail[:200]}).") from error
