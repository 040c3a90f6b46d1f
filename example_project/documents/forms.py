"""The upload form: several PDFs at once, each within the cap."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.template.defaultfilters import filesizeformat

from example_project.documents import conf


class SeveralFilesInput(forms.FileInput):
    allow_multiple_selected = True


class SeveralFilesField(forms.FileField):
    """A file field whose value is a list. Empty files pass: their job says what is wrong."""

    widget = SeveralFilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile]:
        files = data if isinstance(data, Sequence) else [data]
        return [super(SeveralFilesField, self).clean(file, initial) for file in files or [None]]


class UploadForm(forms.Form):
    pdfs = SeveralFilesField(
        label="PDF files",
        allow_empty_file=True,
        widget=SeveralFilesInput(attrs={"accept": "application/pdf,.pdf"}),
        error_messages={"required": "Choose at least one PDF."},
    )

    def clean_pdfs(self) -> list[UploadedFile]:
        """Refuse the whole upload when one file is too large, naming it, so that nothing is half taken."""
        files: list[UploadedFile] = self.cleaned_data["pdfs"]
        cap = conf.max_bytes()
        large = [file for file in files if (file.size or 0) > cap]
        if large:
            raise ValidationError(
                [
                    f"{file.name} has {filesizeformat(file.size)}; the limit is {filesizeformat(cap)} "
                    f"a file. Leave it out or split it. Nothing was uploaded."
                    for file in large
                ]
            )
        return files
