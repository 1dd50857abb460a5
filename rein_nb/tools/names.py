"""Annotations as types: strings evaluated where they were written, also in notebooks and inside functions."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

import typing_extensions
from pydantic import AfterValidator


class ToolDefinitionError(TypeError):
    """A function cannot be made a tool; the message says which parameter stands in the way, and what would help."""


class Names:
    """Resolves annotations: module globals, closure, the enclosing functions' locals, the class of a method."""

    def __init__(self, fn: Callable[..., Any], extra: Mapping[str, Any] | None = None) -> None:
        self._scope = getattr(fn, "__qualname__", "").rpartition(".")[0]
        self._module = getattr(fn, "__module__", None)
        self._globals = getattr(fn, "__globals__", None) or vars(
            sys.modules.get(self._module or "", types.ModuleType(""))
        )
        names: dict[str, Any] = {}
        self._add_enclosing_frames(names)
        closure = getattr(fn, "__closure__", None)
        if closure:
            for name, cell in zip(fn.__code__.co_freevars, closure, strict=False):
                try:
                    names[name] = cell.cell_contents
                except ValueError:  # the cell is not filled yet: the name belongs to a later assignment
                    continue
        for type_parameter in getattr(fn, "__type_params__", ()):
            names[type_parameter.__name__] = type_parameter
        names.update(extra or {})
        self._locals = names

    def _add_enclosing_frames(self, names: dict[str, Any]) -> None:
        enclosing = [scope for scope in self._scope.split(".<locals>") if scope]
        wanted = {".<locals>".join(enclosing[: n + 1]) for n in range(len(enclosing))}
        frame = sys._getframe(1) if self._scope else None
        while frame is not None:
            if frame.f_globals is self._globals and frame.f_code.co_qualname in wanted:
                for name, value in frame.f_locals.items():
                    names.setdefault(name, value)
            frame = frame.f_back

    def resolve(self, annotation: Any, parameter: str, tool: str) -> Any:
        """The annotation with every string in it evaluated."""
        if annotation is inspect.Parameter.empty or (
            isinstance(annotation, type) and not hasattr(annotation, "__args__")
        ):
            return annotation
        holder = types.SimpleNamespace(__annotations__={parameter: annotation})
        names = self._locals
        while True:
            try:
                hints = typing_extensions.get_type_hints(holder, self._globals, names, include_extras=True)
                return modern(hints[parameter])
            except NameError as exc:
                missing = exc.name or str(exc).split("'")[1]
                found = self._live_class(missing) if missing not in names else None
                if found is None:
                    raise ToolDefinitionError(
                        f"tool {tool!r}: the annotation of parameter {parameter!r} names {missing!r}, which cannot be found from the "
                        f"function; define it at module level, or make the tool where the name is visible"
                    ) from exc
                names = self._locals = {**names, missing: found}
            except (TypeError, SyntaxError) as exc:
                raise ToolDefinitionError(
                    f"tool {tool!r}: the annotation of parameter {parameter!r} is not a type: {exc}"
                ) from exc

    def _live_class(self, name: str) -> type | None:
        """The newest living class of that name made in the same function: its frame is gone, the class may not be."""
        if not self._scope:
            return None
        found: type | None = None
        seen: set[type] = set()
        queue: list[type] = [object]
        while queue:
            below: list[type] = type.__subclasses__(queue.pop())
            for cls in below:
                if cls in seen:
                    continue
                seen.add(cls)
                queue.append(cls)
                if (
                    cls.__name__ == name
                    and cls.__module__ == self._module
                    and cls.__qualname__ == f"{self._scope}.{name}"
                ):
                    found = cls
        return found


# -- typing.TypedDict before Python 3.12 -------------------------------------------------------------

_converted: dict[Any, Any] = {}
_REQUIREDNESS: frozenset[Any] = frozenset({typing.Required, typing.NotRequired})


def modern(annotation: Any) -> Any:
    """The annotation with every ``typing.TypedDict`` in it as one of typing_extensions.

    Before Python 3.12 the standard library's lacks what pydantic needs to read it.
    """
    if sys.version_info >= (3, 12):
        return annotation
    if isinstance(annotation, type) and typing.is_typeddict(annotation):
        return _converted_typed_dict(annotation)
    return _with_arguments(annotation, modern)


_LAZY = (
    collections.abc.Iterable, collections.abc.Iterator, collections.abc.Generator, collections.abc.Collection, collections.abc.Container,
    collections.abc.Reversible,
)  # fmt: skip


def eager(annotation: Any) -> Any:
    """The annotation with a list for every ``Iterable`` in it: pydantic checks the items of one only while the function reads them."""
    origin = get_origin(annotation)
    if annotation in _LAZY or origin in _LAZY:
        items = get_args(annotation)[:1] or (Any,)
        whole = types.GenericAlias(list, (eager(items[0]),))
        one_by_one = (origin or annotation) in (collections.abc.Iterator, collections.abc.Generator)
        return typing.Annotated[whole, AfterValidator(iter)] if one_by_one else whole
    return _with_arguments(annotation, eager)


def _with_arguments(annotation: Any, change: Callable[[Any], Any]) -> Any:
    """The annotation with its arguments changed; itself when that changes nothing."""
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if not arguments or origin in (typing.Literal, typing_extensions.Literal, collections.abc.Callable):
        return annotation
    if origin is typing.Annotated:
        inner = change(arguments[0])
        return annotation if inner is arguments[0] else typing.Annotated[(inner, *arguments[1:])]
    changed = tuple(change(argument) for argument in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return annotation
    if isinstance(annotation, types.UnionType):
        return typing.Union[changed]  # noqa: UP007 - built at run time
    if hasattr(annotation, "copy_with"):
        return annotation.copy_with(changed)
    return types.GenericAlias(origin, changed)


def _converted_typed_dict(cls: Any) -> Any:
    found = _converted.get(cls)
    if found is not None:
        return found
    if not cls.__module__ or type(cls).__module__ == "typing_extensions":
        return cls
    hints = typing_extensions.get_type_hints(cls, include_extras=True)
    fields = {}
    for key, hint in hints.items():
        bare = get_origin(hint) not in _REQUIREDNESS
        wanted = typing_extensions.Required if key in cls.__required_keys__ else typing_extensions.NotRequired
        fields[key] = wanted[modern(hint)] if bare else modern(hint)
    made = typing_extensions.TypedDict(cls.__name__, fields, total=cls.__total__)  # type: ignore[misc]
    made.__doc__, made.__module__, made.__qualname__ = cls.__doc__, cls.__module__, cls.__qualname__
    _converted[cls] = made
    return made
