"""`@tool`, and whatever else becomes a `Tool`: methods of a class, agents, plain callables."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, overload

from rein_nb.tools.callables import is_unbound_method
from rein_nb.tools.names import ToolDefinitionError
from rein_nb.tools.options import check_options
from rein_nb.tools.render import DEFAULT_MAX_CHARS
from rein_nb.tools.tool import NeedsApproval, Tool


class MethodTool:
    """``@tool`` on a method in a class body: becomes a `Tool` when it is looked up on an instance."""

    def __init__(self, fn: Any, options: dict[str, Any]) -> None:
        check_options(options)
        self._fn = fn
        self._options = options
        self.__doc__ = getattr(fn, "__doc__", None)
        self.__name__ = getattr(fn, "__name__", "method")
        self.__qualname__ = getattr(fn, "__qualname__", self.__name__)

    def bind(self, instance: Any, owner: type | None) -> Tool:
        """The tool of one instance (or class, for a class method)."""
        return Tool(self._fn.__get__(instance, owner), **self._options)

    @overload
    def __get__(self, instance: None, owner: type) -> MethodTool | Tool: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Tool: ...
    def __get__(self, instance: object, owner: type | None = None) -> MethodTool | Tool:
        if isinstance(self._fn, classmethod):
            return self.bind(instance, owner or type(instance))
        if instance is None:
            return self
        return self.bind(instance, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The method itself, called with its instance as the first argument."""
        return self._fn(*args, **kwargs)


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    requires_approval: NeedsApproval = False,
    parallel_safe: bool = True,
    strict: bool | None = None,
    in_thread: bool = True,
    max_result_chars: int = DEFAULT_MAX_CHARS,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: ``@tool`` or ``@tool(timeout_s=5)``. The options are those of `Tool`.

    On a method in a class body it becomes a tool of each instance: ``Agent(..., tools=[store.bump])``.

    Examples
    --------
    >>> @tool(name="sum")
    ... def add(a: int, b: int) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> add.name, add(1, 2)
    ('sum', 3)
    """

    def make(target: Any) -> Any:
        if isinstance(target, classmethod) or is_unbound_method(target):
            return MethodTool(target, options)
        return Tool(target, **options)

    return make if fn is None else make(fn)


def as_tool(thing: Any) -> Tool:
    """A `Tool` from a tool, any callable, or an object with an ``as_tool()`` method (an agent).

    Raises
    ------
    ToolDefinitionError
        For anything else.
    """
    if isinstance(thing, Tool):
        return thing
    if isinstance(thing, MethodTool):
        raise ToolDefinitionError(f"{thing.__qualname__} is a method without its instance; use it through an instance")
    if isinstance(thing, types.MethodType) and isinstance(thing.__func__, MethodTool):
        return thing.__func__.bind(thing.__self__, type(thing.__self__))
    if not isinstance(thing, type) and callable(getattr(thing, "as_tool", None)):
        made = thing.as_tool()
        if isinstance(made, Tool):
            return made
    if callable(thing):
        return Tool(thing)
    raise ToolDefinitionError(f"not a tool: {type(thing).__name__}; give functions, Tools or Toolsets")
