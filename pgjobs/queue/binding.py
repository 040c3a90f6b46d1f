"""Calls of a handler as keyword arguments: what ``enqueue`` was given, checked against the handler's signature."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pgjobs.exceptions import InvalidHandler, SignatureMismatch
from pgjobs.queue.registry import Handler


class Binding:
    """Binds calls of one handler. ``signature`` is the function's without the context."""

    __slots__ = ("_context", "_handler", "_names", "_positional", "_required", "_rest", "signature")

    def __init__(self, handler: Handler) -> None:
        """Raises :class:`InvalidHandler` when keywords cannot fill the parameters."""
        self.signature, self._context = _payload_signature(handler.function, handler.takes_context)
        self._handler = handler  # its name may not be known before Django is ready
        parameters = self.signature.parameters.values()
        named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
        self._rest = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._positional = [p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._names = frozenset(p.name for p in named)
        self._required = frozenset(p.name for p in named if p.default is p.empty)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call as keyword arguments, in a dict of its own. Raises :class:`SignatureMismatch`."""
        if not args and type(kwargs) is dict and kwargs.keys() == self._names:
            return kwargs.copy()
        if type(kwargs) is dict and len(args) <= len(self._positional):
            payload = dict(zip(self._positional, args, strict=False))
            payload.update(kwargs)
            if (
                len(payload) == len(args) + len(kwargs)
                and self._names.issuperset(payload)
                and self._required.issubset(payload)
            ):
                return payload
        return self._bind_by_signature(args, kwargs)

    def _bind_by_signature(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What :meth:`bind` does, for every kind of parameter and with Python's own words for what is wrong."""
        if not isinstance(kwargs, Mapping):
            raise self._mismatch(f"{kwargs!r} is not a dict of arguments")
        try:
            payload = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise self._mismatch(str(error)) from None
        if self._rest is not None:
            rest = payload.pop(self._rest, {})
            if self._context in rest:  # the worker would pass it twice
                raise self._mismatch(f"{self._context!r} is the context, which the worker gives")
            payload.update(rest)
        return payload

    def _mismatch(self, problem: str) -> SignatureMismatch:
        return SignatureMismatch(self._handler.job_type, str(self.signature), problem)


def _payload_signature(function: Any, takes_context: bool) -> tuple[inspect.Signature, str | None]:
    """The signature without the context, and the context's name."""
    if not inspect.isfunction(inspect.unwrap(function)):
        raise InvalidHandler(f"@job needs a plain function, not {function!r}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidHandler(f"@job {function.__qualname__} is a generator: calling it would run nothing.")
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    context = None
    if takes_context:
        if not parameters:
            raise InvalidHandler(
                f"@job {function.__qualname__} says takes_context=True but has no parameter for it."
            )
        context, parameters = parameters[0].name, parameters[1:]
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidHandler(
                f"@job {function.__qualname__}{signature}: {parameter} cannot be filled by name, and a payload is "
                f"keyword arguments. Use ordinary parameters."
            )
    return signature.replace(parameters=parameters, return_annotation=signature.empty), context
