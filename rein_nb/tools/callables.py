"""Reading callables: functions, methods, partials, decorated functions and objects with ``__call__``, all alike."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_args, get_origin

from rein_nb.tools.context import ToolContext
from rein_nb.tools.names import ToolDefinitionError


def unwrap(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that holds the annotations: behind partials, bound methods, decorators and ``__call__``.

    Raises
    ------
    ToolDefinitionError
        When what wraps what goes round in a circle.
    """
    seen: list[Any] = []  # what is kept here cannot be made again under the same id
    while True:
        if any(fn is one for one in seen):
            raise ToolDefinitionError(f"{callable_name(seen[0])!r} wraps itself (__wrapped__)")
        seen.append(fn)
        if isinstance(fn, functools.partial | functools.partialmethod):
            fn = fn.func
        elif inspect.ismethod(fn) or isinstance(fn, staticmethod | classmethod):
            fn = fn.__func__
        elif _has(fn, "__wrapped__"):
            fn = fn.__wrapped__  # type: ignore[attr-defined]
        elif inspect.isfunction(fn) or inspect.isbuiltin(fn) or inspect.isclass(fn):
            return fn
        elif inspect.ismethod(getattr(fn, "__call__", None)):  # noqa: B004 - the bound __call__ is wanted, not a test
            fn = fn.__call__.__func__  # type: ignore[operator]
        else:
            return fn


def _has(fn: Any, name: str) -> bool:
    """Whether there is such an attribute, and not only an object that answers to every name."""
    return inspect.getattr_static(fn, name, None) is not None


def callable_name(fn: Callable[..., Any]) -> str:
    """The name a callable goes by; the class's name for a callable object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None)
    return name if name and isinstance(name, str) else type(fn).__name__


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine (also behind partials, decorated and callable objects)."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def is_unbound_method(fn: Callable[..., Any]) -> bool:
    """Whether this is a plain function from a class body that still waits for its instance."""
    if not inspect.isfunction(fn):
        return False
    scope = fn.__qualname__.split(".")
    if len(scope) < 2 or scope[-2] == "<locals>":
        return False
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    return first is not None and first.name in ("self", "cls")


def owner_of(fn: Callable[..., Any]) -> type | None:
    """The class of the instance that a method is bound to; None for what is no bound method."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    instance = getattr(fn, "__self__", None) if inspect.ismethod(fn) else None
    return instance if isinstance(instance, type) or instance is None else type(instance)


def docstring(fn: Callable[..., Any]) -> str | None:
    """The docstring that describes the call."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return fn.__doc__
    return getattr(type(fn).__call__, "__doc__", None) or type(fn).__doc__


def visible_parameters(fn: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    """The parameters that a caller can still give."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError) as exc:
        raise ToolDefinitionError(
            f"{callable_name(fn)!r} has no signature to read ({exc}); wrap it in a function with annotations"
        ) from exc
    bound: set[str] = set()
    while isinstance(fn, functools.partial):
        # What was bound by keyword is settled; its value may be a secret and must not show up as a default.
        bound |= set(fn.keywords)
        fn = fn.func
    return [parameter for parameter in parameters if parameter.name not in bound]


def is_context(annotation: Any) -> bool:
    """Whether an annotation asks for the `ToolContext`."""
    origin = get_origin(annotation)
    if origin is Annotated or origin in (typing.Union, types.UnionType):
        return any(is_context(arg) for arg in get_args(annotation)[: 1 if origin is Annotated else None])
    candidate = origin or annotation
    return isinstance(candidate, type) and issubclass(candidate, ToolContext)
