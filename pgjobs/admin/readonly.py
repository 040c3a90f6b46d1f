"""Admin pages that only show, and whose cost does not grow with the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import DatabaseError, InterfaceError
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import cached_property
from django.utils.text import capfirst

from pgjobs.admin.limits import LIST_SECONDS, PANEL_SECONDS, Undone, limited, told, undone
from pgjobs.admin.pages import FRAGMENT, chrome, respond
from pgjobs.admin.verbs import TickedForm, denied, lacking, ticked
from pgjobs.admin.window import PARAMETER
from pgjobs.conf import get_settings
from pgjobs.queue import rights
from pgjobs.queue.stats import COUNT_LIMIT

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    AnyPaginator = Paginator[Any]
else:
    ModelAdmin = admin.ModelAdmin
    AnyPaginator = Paginator


OURS = frozenset({PARAMETER, FRAGMENT, "decided"})
"""Parameters of lists that are no filters of Django's."""


class BoundedPaginator(AnyPaginator):
    """Counts to :data:`COUNT_LIMIT` and no further; later rows are reached by filters and search."""

    known: int | None = None
    """The count, where the page has read it for another purpose."""

    @cached_property
    def _counted(self) -> int:
        if self.known is not None:
            return self.known
        # The order stays: without it, a LIMIT invites a plan that reads the table from its oldest end.
        rows: Any = self.object_list
        found: int = rows.values("pk")[: COUNT_LIMIT + 1].count()
        return found

    @cached_property
    def count(self) -> int:
        """Rows that can be paged through."""
        return min(self._counted, COUNT_LIMIT)

    def page(self, number: Any) -> Any:
        """One page. The rows of later ones are found by their ids, for which an index is enough: without that, all
        rows of the pages before would be read."""
        page = super().page(number)
        if page.number > 1:
            rows: Any = self.object_list
            shown: Any = page.object_list
            page.object_list = rows.filter(pk__in=shown.values("pk"))
        return page

    @property
    def label(self) -> str:
        """The count for people: "312", or "10,000+"."""
        return f"{self.count:,}" + ("+" if self._counted > COUNT_LIMIT else "")


class BoundedChangeList(ChangeList):
    """A list in one fixed order, without the large columns."""

    notice = ""
    """What the list looked through, when that is not everything."""
    problems: Sequence[str] = ()
    """What of the search could not be understood."""

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """Without the parameters that are ours."""
        found: dict[str, Any] = super().get_filters_params(params)
        return {name: value for name, value in found.items() if name not in OURS}

    @property
    def pages(self) -> Iterator[Any]:
        """The numbers of the pages to link to."""
        return self.paginator.get_elided_page_range(self.page_num) if self.multi_page else iter(())

    def get_results(self, request: HttpRequest) -> None:
        """A count of all rows is not made, so none stands beside the search; the paginator tells the bounded one."""
        super().get_results(request)
        self.full_result_count = self.result_count

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """The page's own order. ``?o=`` is ignored: it would sort the whole table by a column without index."""
        return list(self.model_admin.ordering or ["-pk"])

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """The filtered rows, as the page narrows them."""
        self.request = request
        rows = super().get_queryset(request, exclude_parameters)
        narrowed: QuerySet[Any] = self.model_admin.narrow(self, rows)  # type: ignore[attr-defined]
        return narrowed

    def url_for_result(self, result: Model) -> str:
        """Where a row's link leads."""
        return str(self.model_admin.url_of(result.pk))  # type: ignore[attr-defined]


class ReadOnlyAdmin(ModelAdmin):
    """Rows are shown, never edited, added or deleted by a form."""

    view_permission: str
    """The full name of the permission that opens the page."""
    target_kind = ""
    """What the table of rights calls the rows that actions move."""
    large_columns: tuple[str, ...] = ()
    """Columns that lists leave in the database."""

    action_form = TickedForm
    actions_selection_counter = False  # it offers "select all", which would hand an action the whole table
    change_list_template = "pgjobs/admin/change_list.html"
    list_max_show_all = 100
    list_per_page = 100
    ordering: ClassVar[Any] = ("-pk",)
    paginator = BoundedPaginator
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by = ()

    class Media:
        css = {"all": ["pgjobs/admin.css"]}

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list, made before the time for its statements ends; or, in its place, why it cannot be shown."""
        extra_context = {"title": capfirst(self.opts.verbose_name_plural), **(extra_context or {})}
        if request.method == "POST":
            if refused := self._refused_action(request):
                return refused
            try:
                answer: HttpResponse = super().changelist_view(request, extra_context)
                return answer
            except Undone as error:
                messages.error(request, str(error))
            except (DatabaseError, InterfaceError) as error:
                messages.error(request, undone(error, LIST_SECONDS, committing=True))
            return HttpResponseRedirect(request.get_full_path())
        try:
            with limited(LIST_SECONDS):
                response: Any = super().changelist_view(request, {**chrome(self, request), **extra_context})
                return response.render() if hasattr(response, "render") else response  # type: ignore[no-any-return]
        except (DatabaseError, InterfaceError) as error:
            problem = told(error, LIST_SECONDS)
        return respond(
            self,
            request,
            "pgjobs/admin/unavailable.html",
            lambda: {"problem": problem},
            title=str(self.opts.verbose_name_plural).capitalize(),
            shared=False,
        )

    def _refused_action(self, request: HttpRequest) -> HttpResponse | None:
        """The answer to an action without its permission, which Django would take for none that was chosen."""
        name = request.POST.get("action", "")
        if name not in (self.actions or ()) or name in self.get_actions(request):
            return None
        verb = name.removesuffix("_selected")
        permission = lacking(self, request, rights.right(self.target_kind, verb).permission)
        if not permission:
            return None
        return denied(request, verb, permission, kind=self.target_kind, ids=ticked(request))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Rows with ``clock``, the database's time: ages are differences of two instants of one clock."""
        rows: QuerySet[Any] = self.model._default_manager.using(get_settings().database).annotate(clock=Now())
        return rows

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row, or None. Raises what the database raises, for a lock that is not given in time too."""
        with limited(PANEL_SECONDS):
            return super().get_object(request, object_id, from_field)

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """The list, which an action reads too before it acts."""
        with limited(LIST_SECONDS):
            return super().get_changelist_instance(request)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The bounded list."""
        return BoundedChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact matches only; a substring search reads every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        return queryset.none() if "\x00" in term else self.matching(queryset, term), False

    def matching(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Those of ``rows`` that are called exactly so; a list without a search has them all."""
        return rows

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """The last word on what a list reads."""
        return rows.defer(*self.large_columns) if self.large_columns else rows

    def url_of(self, pk: Any) -> str:
        """The page of one row."""
        raise NotImplementedError

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the filters of the page; ``?last_error__icontains=`` would read every row."""
        names = {getattr(each, "parameter_name", None) for each in self.list_filter}
        return lookup in names

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the site lists the page."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may look."""
        return request.user.has_perm(self.view_permission)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False
