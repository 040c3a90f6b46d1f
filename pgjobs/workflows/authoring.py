"""What authors of workflows import: ``@workflow`` and the object it makes. Loads no models until something starts."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from asgiref.sync import sync_to_async
from django.db import transaction

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.databases import warn_if_committed_apart
from pgjobs.exceptions import InvalidHandler, InvalidOption, SignatureMismatch
from pgjobs.queue.authoring import JobOptions
from pgjobs.redaction import checked_entries
from pgjobs.workflows.registry import Definition, OnDivergence, workflows

if TYPE_CHECKING:
    from pgjobs.workflows.claiming import ClaimedExecution
    from pgjobs.workflows.lifecycle import NewExecution
    from pgjobs.workflows.models import Execution

logger = logging.getLogger("pgjobs.workflows")

_OWN = ("key", "actor", "subject", "run_after")


@dataclass(frozen=True, slots=True, eq=False)
class WorkflowType:
    """A workflow that can be started. Calling it calls the body, here and now, with a context of your own."""

    definition: Definition
    signature: inspect.Signature
    options: JobOptions

    @property
    def workflow_name(self) -> str:
        """The name its rows carry."""
        return self.definition.workflow_name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.definition.function(*args, **kwargs)

    def using(self, *, queue: str | None = None, priority: int | None = None) -> WorkflowType:
        """A copy that starts executions in another queue or with another priority."""
        given = {"queue": queue, "priority": priority}
        return replace(
            self,
            options=replace(self.options, **{k: v for k, v in given.items() if v is not None}),  # type: ignore[arg-type]
        )

    def start(
        self,
        *args: Any,
        key: str | None = None,
        actor: Any = None,
        subject: Any = None,
        run_after: dt.datetime | dt.timedelta | None = None,
        **input: Any,
    ) -> Execution:
        """Start an execution in the caller's transaction, or return the one that has this ``key`` already.

        ``actor`` is the user who starts it (four-eyes approvals exclude them), ``subject`` a model instance it is
        about. When the key was taken with another input, the returned execution says so in ``input_differs``; when
        that one is in the archive, in ``archived``, and it cannot be saved or refreshed.
        Raises :class:`SignatureMismatch` or :class:`NotStorable`; then nothing was started.
        """
        from pgjobs.workflows.models import Execution

        _check_key(key)
        options = replace(self.options, run_after=run_after)
        new = self.new(args, input)
        new = replace(
            new,
            key=key,
            queue=options.queue,
            priority=options.priority,
            started_by=str(getattr(actor, "pk", "") or ""),
            at=run_after if isinstance(run_after, dt.datetime) else None,
            delay=run_after.total_seconds() if isinstance(run_after, dt.timedelta) else 0.0,
            **_subject(subject),
        )
        using = get_settings().database
        warn_if_committed_apart(using, "start()", self.workflow_name)
        pk = _insert(new, using)
        if pk is not None:
            return Execution._base_manager.using(using).get(pk=pk)
        return _standing(new, using)

    async def astart(self, *args: Any, **kwargs: Any) -> Execution:
        """:meth:`start` for async code."""
        return await sync_to_async(self.start)(*args, **kwargs)

    def new(
        self, args: tuple[Any, ...], input: dict[str, Any], *, parent: ClaimedExecution | None = None
    ) -> NewExecution:
        """What a new execution is inserted with. Raises :class:`SignatureMismatch` or :class:`NotStorable`."""
        from pgjobs.workflows.lifecycle import NewExecution

        try:
            bound = self.signature.bind(*args, **input)
        except TypeError as error:
            raise SignatureMismatch(
                self.workflow_name, str(self.signature), str(error), "No execution was started."
            ) from None
        payload = bound.arguments
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                payload.update(payload.pop(name, {}))
        text = codec.dumps(payload, label="input", max_bytes=get_settings().max_payload_bytes)
        return NewExecution(
            workflow_name=self.workflow_name,
            version=self.definition.version,
            queue=self.options.queue,
            priority=self.options.priority,
            max_crashes=self.definition.max_crashes,
            input=text,
            started_by=parent.started_by if parent else "",
            parent_id=parent.lease.pk if parent else None,
        )


@overload
def workflow(function: Callable[..., Any], /) -> WorkflowType: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: int = 1,
    queue: str = "default",
    priority: int = 100,
    max_crashes: int = 3,
    on_divergence: OnDivergence = "pause",
    redact: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], WorkflowType]: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    queue: str = "default",
    priority: int = 100,
    max_crashes: int = 3,
    on_divergence: OnDivergence = "pause",
    redact: Sequence[str] = (),
) -> Any:
    """Make a function a workflow: ``@workflow(name="orders.fulfil", version=1)``.

    Its first parameter is the context, the others its input. Rows carry ``name`` (by default ``<app label>.<function
    name>``) and the ``version`` they were started with. ``on_divergence`` says what happens when the code no longer
    calls what the history recorded: "pause" (a person resumes it after a fix), "fail", or "warn". ``redact`` names
    further keys of its values that are secret (:mod:`pgjobs.redaction`).
    Raises :class:`InvalidHandler`, :class:`InvalidOption` or :class:`DuplicateName` at import.
    """
    options = JobOptions(queue=queue, priority=priority, max_crashes=max_crashes)
    if on_divergence not in ("pause", "fail", "warn"):
        raise InvalidOption("on_divergence", on_divergence, 'give "pause", "fail" or "warn".')
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**31:
        raise InvalidOption("version", version, "give a whole number from 0.")

    hidden = checked_entries(redact)

    def declare(function: Callable[..., Any]) -> WorkflowType:
        signature = _input_signature(function)
        definition = Definition(function, name, version, queue, priority, max_crashes, on_divergence, hidden)
        workflows.add(definition)
        return WorkflowType(definition, signature, options)

    return declare if function is None else declare(function)


def _input_signature(function: Any) -> inspect.Signature:
    if not inspect.isfunction(inspect.unwrap(function)):
        raise InvalidHandler(f"@workflow needs a plain function, not {function!r}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidHandler(
            f"@workflow {function.__qualname__} is a generator: calling it would run nothing."
        )
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if not parameters:
        raise InvalidHandler(f"@workflow {function.__qualname__} needs a first parameter for the context.")
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidHandler(
                f"@workflow {function.__qualname__}{signature}: {parameter} cannot be filled by name, and an input "
                f"is keyword arguments. Use ordinary parameters."
            )
        if parameter.name in _OWN:
            raise InvalidHandler(
                f"@workflow {function.__qualname__}: a parameter cannot be called {parameter.name!r}, which start() "
                f"takes for itself. Give it another name."
            )
    return signature.replace(parameters=parameters[1:], return_annotation=signature.empty)


def _check_key(key: Any) -> None:
    if key is None:
        return
    if not isinstance(key, str) or not key.strip() or len(key) > 255:
        raise InvalidOption("key", key, "give text of 1 to 255 characters, or None for no key.")
    codec.check_text(key, "key")


def _subject(subject: Any) -> dict[str, Any]:
    from django.contrib.contenttypes.models import ContentType

    if subject is None:
        return {}
    found = ContentType.objects.get_for_model(subject)
    return {"subject_type_id": found.pk, "subject_id": str(subject.pk)}


def _insert(new: NewExecution, using: str) -> int | None:
    """Insert an execution; None when its key is taken, in the live tables or in the archive."""
    from pgjobs.workflows.lifecycle import insert
    from pgjobs.workflows.models import ArchivedExecution

    if new.key is None:
        return insert(new, using=using)
    with transaction.atomic(using=using):
        pk = insert(new, using=using)
        # Looked for afterwards: what goes to the archive meanwhile is committed there before the key is free.
        archived = ArchivedExecution._base_manager.using(using)
        if pk is not None and archived.filter(workflow_name=new.workflow_name, key=new.key).exists():
            transaction.set_rollback(True, using=using)
            return None
    return pk


def _standing(new: NewExecution, using: str) -> Execution:
    """The execution that has the key."""
    from pgjobs.workflows.continuing import first_input
    from pgjobs.workflows.models import ArchivedExecution, Execution

    holder = {"workflow_name": new.workflow_name, "key": new.key}
    execution = Execution._base_manager.using(using).filter(**holder).first()
    if execution is None:
        archive = ArchivedExecution._base_manager.using(using).filter(**holder)
        execution = _from_story(archive.latest("id").story["execution"], using)
    started_with = execution.input
    if started_with != json.loads(new.input) or execution.continued_from_id is not None:
        started_with = first_input(execution.pk, new.workflow_name, using=using)
    execution.input_differs = started_with != json.loads(new.input)
    if execution.input_differs:
        logger.warning(
            "workflow=%s key=%s is taken by execution %s with another input; it was not changed",
            new.workflow_name,
            new.key,
            execution.pk,
        )
    return execution


def _from_story(row: dict[str, Any], using: str) -> Execution:
    """An archived execution as it was when it left the live tables."""
    from pgjobs.workflows.models import Execution

    fields = [field for field in Execution._meta.concrete_fields if field.attname in row]
    execution = Execution(**{field.attname: field.to_python(row[field.attname]) for field in fields})
    execution._state.adding, execution._state.db = False, using
    execution.archived = True
    return execution
