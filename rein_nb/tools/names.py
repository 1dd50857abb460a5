"""Annotations as types: strings evaluated where they were written, also in notebooks and inside functions."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import typing_extensions

from rein_nb.tools.annotations import modern


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
                hint = hints[parameter]
                typing.Annotated[hint, None]  # refuses what is no type at all
                return modern(hint)
            except NameError as exc:
                missing = exc.name or str(exc).split("'")[1]
                found = self._live_class(missing) if missing not in names else None
                if found is None:
                    raise ToolDefinitionError(
                        f"tool {tool!r}: the annotation of parameter {parameter!r} names {missing!r}, which cannot be found from the "
                        f"function; define it at module level, or make the tool where the name is visible"
                    ) from exc
                names = self._locals = {**names, missing: found}
            except Exception as exc:  # an annotation is code
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
