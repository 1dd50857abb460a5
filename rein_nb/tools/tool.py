"""`Tool`: a Python callable that a model can call."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rein_nb.ir import ToolCall, ToolResult, ToolSpec, sanitize_tool_name
from rein_nb.ir.base import own_copy
from rein_nb.ir.clock import Stopwatch
from rein_nb.stream import CancellationToken
from rein_nb.tools import outcomes
from rein_nb.tools.arguments import Arguments
from rein_nb.tools.callables import callable_name, is_async, is_unbound_method, unwrap
from rein_nb.tools.context import ToolContext
from rein_nb.tools.errors import describe_error
from rein_nb.tools.execute import (
    STOP_GRACE_S,
    Ended,
    EndsRun,
    call_async,
    call_in_thread,
    call_sync,
    is_for_loop,
    run_guarded,
)
from rein_nb.tools.jsonable import is_plain
from rein_nb.tools.names import ToolDefinitionError
from rein_nb.tools.options import check_options, valid_name
from rein_nb.tools.render import DEFAULT_MAX_CHARS, to_result
from rein_nb.tools.signature import InvalidArguments, Signature
from rein_nb.tools.threads import ToolStopped

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
        Seconds a call may take, with the rendering of its result; None for no limit.
    requires_approval
        True, or a function of the arguments that says whether this call needs a decision.
    parallel_safe
        False: never runs at the same time as another tool of the turn.
    strict
        Ask the provider to enforce the schema, where it can.
    in_thread
        Synchronous functions run in a thread of their own; False runs this one on the event loop. Where a function ran its result is
        rendered; that of a coroutine function in a thread, unless it is a little plain data.
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
        if isinstance(fn, Tool):  # its options, an approval among them, would be lost
            raise ToolDefinitionError(
                f"{fn.name!r} is a tool already; with_options(...) makes a copy with other options"
            )
        if not callable(fn):
            raise ToolDefinitionError(f"a tool is made from a callable, not from {type(fn).__name__}")
        if is_unbound_method(fn):
            raise ToolDefinitionError(
                f"{fn.__qualname__} is a method without its instance; make the tool from an instance's method (instance.{fn.__name__})"
            )
        check_options(
            {
                "description": description, "timeout_s": timeout_s, "requires_approval": requires_approval, "strict": strict,
                "parallel_safe": parallel_safe, "in_thread": in_thread, "max_result_chars": max_result_chars,
            }
        )  # fmt: skip
        self.fn = fn
        self._signature = Signature(fn, namespace)
        self.name: str = _tool_name(name, fn)
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
        TypeError, ValueError
            For an option that does not exist, or a value that it cannot have.
        """
        check_options(changes)
        made = copy.copy(self)
        for key, value in changes.items():
            setattr(made, key, value)
        made.name = _tool_name(changes.get("name", self.name), self.fn)
        if made.description is None:
            made.description = self._signature.description
        if made.name != self.name:
            made._signature = copy.copy(self._signature)
            made._signature.name = made.name
        made._spec = None
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Tool:
        """A tool with options of its own; what it calls is the same, as a function is when it is copied."""
        return copy.copy(self)

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
            arguments = self._signature.validate(own_copy(call.arguments), ctx)
        except InvalidArguments as exc:
            return Outcome(outcomes.invalid_arguments(call, str(exc)))
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            # A validator of the user's own failed in its own way; nothing is awaited here that could be cancelled.
            return Outcome(outcomes.failed(call, exc, self.max_result_chars))
        if ctx.token.is_cancelled:
            return Outcome(outcomes.not_started(call, ctx.token.reason))
        threaded = self.in_thread and not self._async
        notice_s = _NOTICE_S if threaded and self._signature.takes_context else 0.0
        watch = Stopwatch()
        kept = _Kept()

        def start() -> asyncio.Future[Any]:
            if threaded:
                return call_in_thread(lambda: self._call_and_render(call, arguments, kept), self.name)
            return asyncio.ensure_future(call_async(self.fn, arguments.positional, arguments.keywords))

        end = None if self.timeout_s is None else time.monotonic() + self.timeout_s

        def left() -> float | None:
            return None if end is None else max(0.0, end - time.monotonic())

        ended = await run_guarded(start, ctx.token, self.timeout_s, notice_s)
        if ended.has_value and is_for_loop(ended.value):
            # A plain function that hands back a coroutine: it belongs to the loop, not to the thread.
            unread = ended.value
            ended = await run_guarded(
                lambda: asyncio.ensure_future(call_async(lambda: unread, [], {})), ctx.token, left()
            )
        if ended.has_value:
            kept.value, kept.returned = ended.value, True
        if kept.result is None:
            ended = await self._render(call, ended, kept, ctx.token, left())
        outcome = self._outcome(call, ended, kept, ctx)
        outcome.started_at = watch.started_at
        outcome.duration_s = watch.seconds()
        return outcome

    def _call_and_render(self, call: ToolCall, arguments: Arguments, kept: _Kept) -> Any:
        """The whole of a synchronous call, in its thread: whatever a user's own code has to do happens here."""
        try:
            value = call_sync(self.fn, arguments.positional, arguments.keywords)
        except (KeyboardInterrupt, ToolStopped):
            raise
        except BaseException as exc:
            kept.result = outcomes.failed(call, exc, self.max_result_chars)
            raise
        if not is_for_loop(value):
            kept.value, kept.returned = value, True
            kept.result = _rendered(call, value, self.max_result_chars)
        return value

    async def _render(
        self, call: ToolCall, ended: Ended, kept: _Kept, token: CancellationToken, left_s: float | None
    ) -> Ended:
        """Render in a thread what was not called in one; how the call ended when that is counted in."""
        if not ended.has_value and (ended.how != "raised" or isinstance(ended.error, EndsRun)):
            return ended

        def render() -> ToolResult:
            if ended.has_value:
                return _rendered(call, ended.value, self.max_result_chars)
            error = ended.error or RuntimeError("the tool failed without an exception")
            return outcomes.failed(call, error, self.max_result_chars)

        if not self.in_thread or (ended.has_value and _is_cheap(ended.value)):
            kept.result = render()
            return ended
        if token.is_cancelled:  # what it said when it was stopped is still worth a moment
            token, left_s = CancellationToken(), STOP_GRACE_S
        rendering = await run_guarded(lambda: call_in_thread(render, self.name), token, left_s)
        if rendering.has_value:
            kept.result = rendering.value
            return ended
        return rendering if ended.how in ("returned", "raised") else Ended(ended.how)

    def _outcome(self, call: ToolCall, ended: Ended, kept: _Kept, ctx: ToolContext[Any]) -> Outcome:
        if ended.how == "raised":
            error = ended.error
            if isinstance(error, EndsRun):
                return Outcome(
                    outcomes.interrupted_while_running(call, describe_error(error.cause)), ends_run=error.cause
                )
            return Outcome(kept.result or outcomes.failed(call, error or RuntimeError(), self.max_result_chars))
        result = kept.result if ended.has_value else None
        if ended.how == "returned":
            assert result is not None
            return Outcome(result, kept.value)
        if ended.how == "timed_out":
            partial, details = (result.text, result.details) if result is not None else (None, None)
            if partial is None and kept.returned:
                partial = f"a {type(kept.value).__name__}, which could not be rendered in that time"
            return Outcome(outcomes.timed_out(call, self.timeout_s or 0.0, partial, details), kept.value)
        if result is not None:
            # It noticed the interruption and said itself what it did, which is truer than our guess.
            details = {"started": True, "reason": ctx.token.reason, "returned": result.details}
            return Outcome(
                result.model_copy(update={"status": "interrupted", "is_error": True, "details": details}), kept.value
            )
        return Outcome(outcomes.interrupted_while_running(call, ctx.token.reason), kept.value)


@dataclass(slots=True)
class _Kept:
    """What one call has come to so far: the function's value, and the result made of it (or of its exception)."""

    value: Any = None
    returned: bool = False
    result: ToolResult | None = None


def _is_cheap(value: Any) -> bool:
    """Whether rendering takes no time and runs no code of a user's."""
    if type(value) is ToolResult:
        return is_plain([value.details, value.text])
    return is_plain(value)


def _rendered(call: ToolCall, value: Any, max_chars: int) -> ToolResult:
    """The result for what a function returned; an error that says so when it cannot be rendered."""
    try:
        return to_result(call, value, max_chars)
    except (KeyboardInterrupt, ToolStopped):
        raise
    except BaseException as exc:
        failure = RuntimeError(
            f"the tool returned a {type(value).__name__} that cannot be shown: {describe_error(exc)}"
        )
        failure.__cause__ = exc
        return outcomes.failed(call, failure, max_chars)


def _tool_name(name: str | None, fn: Callable[..., Any]) -> str:
    if name is not None:
        return valid_name(name)
    own = callable_name(fn)
    made = sanitize_tool_name(own)
    if not made or own == "<lambda>":
        raise ToolDefinitionError(f"{own!r} gives no tool name; pass name=")
    return made
