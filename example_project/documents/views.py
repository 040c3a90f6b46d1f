"""Upload, list and read documents. Open to everybody, as an example may be; a real one asks for a login."""

from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse_lazy
from django.views.generic import FormView, ListView

from example_project.documents import conf
from example_project.documents.condition import condition_of
from example_project.documents.forms import UploadForm
from example_project.documents.intake import receive
from example_project.documents.models import Document, Page

REFRESH_SECONDS = 2


def with_jobs() -> QuerySet[Document]:
    """Documents with what the pages show of their jobs, in one query; large columns stay in the database."""
    return Document.objects.select_related("job").defer("job__payload", "job__errors")


class Upload(FormView):
    form_class = UploadForm
    template_name = "documents/upload.html"
    success_url = reverse_lazy("documents:list")
    extra_context = {"max_bytes": conf.max_bytes}

    def form_valid(self, form: UploadForm) -> HttpResponse:
        count = len(receive(form.cleaned_data["pdfs"]))
        messages.success(
            self.request, f"{count} document{'s' * (count != 1)} received; reading has been queued."
        )
        return super().form_valid(form)


class DocumentList(ListView):
    template_name = "documents/list.html"
    paginate_by = 50

    def get_queryset(self) -> QuerySet[Document]:
        return with_jobs()

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        rows = [(document, condition_of(document)) for document in context["page_obj"]]
        unfinished = any(not condition.finished for _, condition in rows)
        return context | {"rows": rows, "refresh_seconds": REFRESH_SECONDS if unfinished else None}


class DocumentDetail(ListView):
    """One document with its pages, a few at a time: a long one must not become one huge answer."""

    template_name = "documents/detail.html"
    paginate_by = 10

    def get_queryset(self) -> QuerySet[Page]:
        self.document = get_object_or_404(with_jobs(), pk=self.kwargs["pk"])
        return self.document.pages.all()

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        condition = condition_of(self.document)
        refresh = None if condition.finished else REFRESH_SECONDS
        return super().get_context_data(
            document=self.document, condition=condition, refresh_seconds=refresh, **kwargs
        )
