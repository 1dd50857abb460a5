"""`Tool` and `@tool`: a Python callable that a model can call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

from rein_nb.ir import ToolCall, ToolResult, ToolSpec, sanitize_tool_name
from rein_nb.ir.base import own_copy
from rein_nb.ir.clock import Stopwatch
from rein_nb.tools import outcomes
from rein_nb.tools.callables import callable_name, is_async, is_unbound_method, unwrap
from rein_nb.tools.context import ToolContext
from rein_nb.tools.execute import Ended, EndsRun, call_async, call_in_thread, call_sync, run_guarded
from rein_nb.tools.names import ToolDefinitionError
from rein_nb.tools.render import DEFAULT_MAX_CHARS, describe_error, is_quick, to_result
from rein_nb.tools.signature import InvalidArguments, Signature

NeedsApproval: TypeAlias = bool | Callable[[dict[str, Any]], bool | Awaitable[bool]]
"""Whether a call needs a decision first: always, never, or depending on its arguments."""

_NOTICE_S = 0.2
"""Seconds that a synchronous tool which takes a context gets to notice its cancellation and return what it has."""


@dataclass(slots=True)
class Outcome:
    """One execution: the result for the transcript, and the Python object for the user.

    Attributes
    ----------
    value
        What the function returned, untouched; None when it did not return.
    started_at, duration_s
        Unix time and seconds; None when the function was never called.
    ends_run
        A KeyboardInterrupt from inside the tool: the run must end with it.
    """

    result: ToolResult
    value: Any = None
    started_at: float | None = None
    duration_s: float | None = None
    ends_run: BaseException | None = None


@dataclass(slots=True)
class _Made:
    """What a function returned, and that as a result; `failure` where it cannot be shown."""

    value: Any = None
    result: ToolResult | None = None
    failure: RuntimeError | None = None


class Tool:
    """A tool made from a function, method, partial or callable object.

    Parameters
    ----------
    fn
        What is called. Its signature gives the schema and validates each call; its docstring describes it.
    name
        The callable's own name by default, made acceptable to every provider.
    description
        The docstring without its sections by default.
    timeout_s
        Seconds a call may take; None for no limit.
    requires_approval
        True, or a function of the arguments that says whether this call needs a decision.
    parallel_safe
        False: never runs at the same time as another tool of the turn.
    strict
        Ask the provider to enforce the schema, where it can.
    in_thread
        Synchronous functions run in a thread of their own; False runs this one on the event loop.
    max_result_chars
        What the model gets of one result, in characters; the rest is kept in ``details``.
    namespace
        A word put before the name, where tools of several origins meet.

    Raises
    ------
    ToolDefinitionError
        When the signature cannot be resolved or described, naming the parameter.

    Examples
    --------
    >>> def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> Tool(add).spec().parameters["required"]
    ['a']
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_s: float | None = None,
        requires_approval: NeedsApproval = False,
        parallel_safe: bool = True,
        strict: bool | None = None,
        in_thread: bool = True,
        max_result_chars: int = DEFAULT_MAX_CHARS,
        namespace: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(fn, staticmethod):
            fn = fn.__func__
        if not callable(fn):
            raise ToolDefinitionError(f"a tool is made from a callable, not from {type(fn).__name__}")
        if is_unbound_method(fn):
            raise ToolDefinitionError(
                f"{fn.__qualname__} is a method without its instance; make the tool from an instance's method (instance.{fn.__name__})"
            )
        _check_options(
            {"timeout_s": timeout_s, "max_result_chars": max_result_chars, "requires_approval": requires_approval}
        )
        self.fn = fn
        self._signature = Signature(fn, namespace)
        self.name = _tool_name(name, fn)
        # What the model reads in an error must be the name it knows the tool by.
        self._signature.name = self.name
        self.description = self._signature.description if description is None else description
        self.timeout_s = timeout_s
        self.requires_approval = requires_approval
        self.parallel_safe = parallel_safe
        self.strict = strict
        self.in_thread = in_thread
        self.max_result_chars = max_result_chars
        self._async = is_async(fn) or inspect.isasyncgenfunction(unwrap(fn))
        self._spec: ToolSpec | None = None
        functools.update_wrapper(self, fn, updated=())
        self.__wrapped__ = fn

    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        spec = self._spec
        if spec is None:
            spec = self._spec = ToolSpec(
                name=self.name, description=self.description, parameters=self._signature.schema, strict=self.strict
            )
        return spec

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function and runs on the event loop."""
        return self._async

    def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether a call with these arguments needs a decision first.

        Raises
        ------
        TypeError
            When ``requires_approval`` is an async function: only a run can ask that one.
        """
        check = self.requires_approval
        if not callable(check):
            return check
        if is_async(check):
            raise TypeError(f"requires_approval of {self.name} is an async function, which only a run can ask")
        return any(check(seen) for seen in self.judged(arguments))

    def judged(self, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The views of a call's arguments that a ``requires_approval`` function judges: what the model wrote, and what the function will be given."""
        yield own_copy(arguments)
        # "true" for a flag is True, and what is left out is its default.
        try:
            checked = self._signature.validate(own_copy(arguments))
            bound = inspect.signature(self.fn).bind_partial(*checked.positional, **checked.keywords)
        except (InvalidArguments, TypeError, ValueError):
            return  # it will not be run, or has no signature to speak of
        bound.apply_defaults()
        yield {**own_copy(arguments), **bound.arguments}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, called as if it had never become a tool."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    def with_options(self, **changes: Any) -> Tool:
        """A copy with other options: any keyword of the constructor but ``namespace``.

        Raises
        ------
        TypeError
            For a word that is no option.
        ValueError
            For a value that an option cannot have.
        """
        known = (
            "name",
            "description",
            "timeout_s",
            "requires_approval",
            "parallel_safe",
            "strict",
            "in_thread",
            "max_result_chars",
        )
        wrong = sorted(set(changes) - set(known))
        if wrong:
            raise TypeError(f"Tool has no option {', '.join(wrong)}; the options are: {', '.join(known)}")
        _check_options(changes)
        copy = Tool.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        for key, value in changes.items():
            setattr(copy, key, _tool_name(value, self.fn) if key == "name" else value)
        if "name" in changes:
            copy._signature = _renamed(self._signature, copy.name)
        copy._spec = None
        return copy

    async def call(self, call: ToolCall, ctx: ToolContext[Any] | None = None) -> ToolResult:
        """Validate and execute one call. Never raises for what the model or the tool did, only when it is itself cancelled."""
        return (await self.execute(call, ctx)).result

    async def execute(self, call: ToolCall, ctx: ToolContext[Any] | None = None) -> Outcome:
        """As `call`, with the returned Python object and the timing."""
        ctx = ctx or ToolContext(call=call)
        if call.error is not None:
            return Outcome(outcomes.malformed_call(call))
        try:
            # A function may change what it is given; the call is the transcript's.
            arguments = self._signature.validate(own_copy(call.arguments))
        except InvalidArguments as exc:
            return Outcome(outcomes.invalid_arguments(call, str(exc)))
        except (Exception, SystemExit) as exc:  # a user's own validator failed in its own way
            return Outcome(outcomes.failed(call, exc, self.max_result_chars))
        keywords = arguments.keywords
        if self._signature.context_parameter is not None:
            keywords[self._signature.context_parameter] = ctx
        if ctx.token.is_cancelled:
            return Outcome(outcomes.not_started(call, ctx.token.reason))
        threaded = self.in_thread and not self._async
        watch = Stopwatch()

        def in_thread() -> _Made:
            return self._made(call, call_sync(self.fn, arguments.positional, keywords))

        async def on_loop(begun: Any = None) -> _Made:
            if begun is None:
                value = await call_async(self.fn, arguments.positional, keywords)
            else:
                value = await _wait_for(begun)
            if is_quick(value):
                return self._made(call, value)
            made: _Made = await call_in_thread(self._made, [call, value], {}, self.name)
            return made

        def start() -> asyncio.Future[Any]:
            return call_in_thread(in_thread, [], {}, self.name) if threaded else asyncio.ensure_future(on_loop())

        notice_s = _NOTICE_S if threaded and self._signature.context_parameter is not None else 0.0
        ended = await run_guarded(start, ctx.token, self.timeout_s, notice_s)
        if ended.has_value and ended.value.result is None and inspect.isawaitable(ended.value.value):
            # A plain function that hands back a coroutine: it belongs to the loop, not to the thread.
            awaitable = ended.value.value
            ended = await run_guarded(lambda: asyncio.ensure_future(on_loop(awaitable)), ctx.token, self.timeout_s)
        outcome = self._outcome(call, ended, ctx)
        outcome.started_at = watch.started_at
        outcome.duration_s = watch.seconds()
        return outcome

    def _made(self, call: ToolCall, value: Any) -> _Made:
        """What a function returned, rendered. Not on the loop where that may take long: a frame's text, a figure, a ``repr`` of the user's own."""
        if inspect.isawaitable(value):
            return _Made(value)
        try:
            return _Made(value, to_result(call, value, self.max_result_chars))
        except (Exception, SystemExit) as exc:
            failure = RuntimeError(
                f"the tool returned a {type(value).__name__} that cannot be shown: {describe_error(exc)}"
            )
            failure.__cause__ = exc
            return _Made(value, None, failure)

    def _outcome(self, call: ToolCall, ended: Ended, ctx: ToolContext[Any]) -> Outcome:
        if ended.how == "raised":
            error = ended.error or RuntimeError("the tool failed without an exception")
            if isinstance(error, EndsRun):
                return Outcome(
                    outcomes.interrupted_while_running(call, describe_error(error.cause)), ends_run=error.cause
                )
            return Outcome(outcomes.failed(call, error, self.max_result_chars))
        made: _Made = ended.value if ended.has_value else _Made()
        if made.failure is not None:
            return Outcome(outcomes.failed(call, made.failure, self.max_result_chars), made.value)
        result = made.result
        if ended.how == "returned":
            assert result is not None
            return Outcome(result, made.value)
        if ended.how == "timed_out":
            partial, returned = (result.text, result.details) if result is not None else (None, None)
            return Outcome(outcomes.timed_out(call, self.timeout_s or 0.0, partial, returned), made.value)
        if result is not None:
            # It noticed the interruption and said itself what it did, which is truer than our guess.
            details = {"started": True, "reason": ctx.token.reason, "returned": result.details}
            return Outcome(
                result.model_copy(update={"status": "interrupted", "is_error": True, "details": details}), made.value
            )
        return Outcome(outcomes.interrupted_while_running(call, ctx.token.reason))


async def _wait_for(awaitable: Any) -> Any:
    return await call_async(lambda: awaitable, [], {})


def _check_options(options: Mapping[str, Any]) -> None:
    timeout_s = options.get("timeout_s")
    if timeout_s is not None and (
        isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0
    ):
        raise ValueError(f"timeout_s must be a number of seconds, more than 0, or None for no limit, not {timeout_s!r}")
    chars = options.get("max_result_chars", 1)
    if isinstance(chars, bool) or not isinstance(chars, int) or chars < 1:
        raise ValueError(f"max_result_chars must be a whole number, at least 1, not {chars!r}")
    approval = options.get("requires_approval", False)
    if not isinstance(approval, bool) and not callable(approval):
        raise ValueError(f"requires_approval must be True, False or a function of the arguments, not {approval!r}")


def _renamed(signature: Signature, name: str) -> Signature:
    copy = Signature.__new__(Signature)
    copy.__dict__.update(signature.__dict__)
    copy.name = name
    return copy


def _tool_name(name: str | None, fn: Callable[..., Any]) -> str:
    if name is not None:
        return ToolSpec(name=name).name
    own = callable_name(fn)
    made = sanitize_tool_name(own)
    if not made or own == "<lambda>":
        raise ToolDefinitionError(f"{own!r} gives no tool name; pass name=")
    return made


class MethodTool:
    """``@tool`` on a method in a class body: becomes a `Tool` when it is looked up on an instance."""

    def __init__(self, fn: Any, options: dict[str, Any]) -> None:
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
