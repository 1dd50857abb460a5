"""Hooks: functions of yours that look at, change or refuse what the loop is about to do. Each may be plain or async.

A plain one runs in a thread of its own, as a plain tool does, so it may take its time (ask a person, say); an async one runs on the
run's event loop. Either is stopped with the run. What a hook is given are copies: the transcript is the loop's.

- ``before_tool_call(call, ctx)`` returns None or True (go on), False or `Deny` (refuse), a dict (new arguments) or a `ToolCall` (new name or
  arguments; the id stays).
- ``after_tool_call(call, result, ctx)`` returns None (keep), a `ToolResult`, or any value, which becomes the result.
- ``before_request(request)`` changes the `ModelRequest` it is given or returns another (or just a list of messages), for this call only.

A hook that fails refuses the call it was asked about: what could not be checked is not run. `AbortRun` ends the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rein_nb.agent.asking import as_flag, ask
from rein_nb.ir import Message, ReinError, ToolCall, ToolResult, ToolSpec
from rein_nb.ir.base import own_copy
from rein_nb.tools import ToolContext, outcomes
from rein_nb.tools.errors import describe_error
from rein_nb.tools.execute import EndsRun
from rein_nb.tools.jsonable import NotJsonable, to_jsonable
from rein_nb.tools.render import DEFAULT_MAX_CHARS, to_result


class AbortRun(ReinError):
    """Raise it in a hook or an approval function to end the run. Running tools are stopped; the transcript stays valid."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse a call; the model reads the reason."""

    reason: str | None = None


@dataclass(slots=True)
class ModelRequest:
    """What is about to be sent to the model; a hook may change it for this one call.

    Attributes
    ----------
    messages, tools
        The transcript so far, and what the model may call.
    tool_choice, output_format, options
        As for `LLM.chat`.
    turn
        Number of the model call, from 1.
    """

    messages: list[Message]
    tools: list[ToolSpec] = field(default_factory=list)
    tool_choice: Any = None
    output_format: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    turn: int = 1


Maybe: TypeAlias = Any | Awaitable[Any]
BeforeToolCall: TypeAlias = Callable[[ToolCall, ToolContext[Any]], Maybe]
AfterToolCall: TypeAlias = Callable[[ToolCall, ToolResult, ToolContext[Any]], Maybe]
BeforeRequest: TypeAlias = Callable[[ModelRequest], Maybe]


async def before_tool_call(
    hooks: Sequence[BeforeToolCall], call: ToolCall, ctx: ToolContext[Any]
) -> tuple[ToolCall, ToolResult | None]:
    """(the call as the hooks left it, the refusal if one refused). Changing the call's arguments in place is changing it, too.

    Raises
    ------
    AbortRun
        When a hook wants the run to end.
    """
    for hook in hooks:
        shown = own_arguments(call)
        try:
            answer = await ask(hook, shown, ctx)
        except (AbortRun, EndsRun):
            raise
        except Exception as exc:
            return call, outcomes.denied(
                call, f"the hook {hook_name(hook)} failed ({describe_error(exc)}), so it was not allowed"
            )
        flag = as_flag(answer)
        if answer is None or flag:
            if _equal(shown.arguments, call.arguments):
                continue
            answer = shown.arguments
        if flag is False:
            return call, outcomes.denied(call, f"refused by {hook_name(hook)}")
        if isinstance(answer, Deny):
            return call, outcomes.denied(call, answer.reason)
        if not isinstance(answer, ToolCall | dict):
            why = f"the hook {hook_name(hook)} returned {type(answer).__name__}, which is no decision"
            return call, outcomes.denied(call, why)
        try:
            # A call is data: it is told to listeners, and saved.
            arguments = to_jsonable(answer if isinstance(answer, dict) else answer.arguments)
        except NotJsonable as exc:
            why = f"the hook {hook_name(hook)} left arguments that are no JSON data: {exc}"
            return call, outcomes.denied(call, why)
        if isinstance(answer, ToolCall):
            call = answer.model_copy(update={"id": call.id, "arguments": arguments})
        else:
            call = call.model_copy(update={"arguments": arguments, "raw_arguments": None, "error": None})
    return call, None


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are equal; not when they cannot be compared (a NumPy array)."""
    try:
        return bool(one == other)
    except Exception:
        return False


async def after_tool_call(
    hooks: Sequence[AfterToolCall], call: ToolCall, result: ToolResult, ctx: ToolContext[Any]
) -> tuple[ToolResult, list[str]]:
    """(the result as the hooks left it, what went wrong in them)."""
    problems: list[str] = []
    for hook in hooks:
        try:
            shown = own_copy(result)
            answer = await ask(hook, own_arguments(call), shown, ctx)
            if answer is None and not _equal(shown, result):
                answer = shown  # changed in place
            if answer is not None:
                result = to_result(call, answer, DEFAULT_MAX_CHARS)
        except (AbortRun, EndsRun):
            raise
        except Exception as exc:
            problems.append(f"the hook {hook_name(hook)} failed ({describe_error(exc)}); the result is left as it was")
    return result, problems


async def before_request(
    hooks: Sequence[BeforeRequest], request: ModelRequest, copies: dict[int, tuple[Message, Message]]
) -> ModelRequest:
    """The request as the hooks left it. What a hook raises is raised.

    The hooks see copies of the messages. One that they left as it was is sent as the transcript's own: encoders know a history by its objects.

    Parameters
    ----------
    copies
        By a message's id, it and the copy of it that hooks have seen and left alone; kept for the next request.
    """
    own = {}
    for index, message in enumerate(request.messages):
        known = copies.get(id(message))
        copy = known[1] if known is not None and known[0] is message else own_copy(message)
        request.messages[index] = copy
        own[id(copy)] = (copy, message)
    for hook in hooks:
        answer = await ask(hook, request)
        if answer is None:
            continue
        if isinstance(answer, ModelRequest):
            request = answer
        elif isinstance(answer, list | tuple) and all(isinstance(item, Message) for item in answer):
            request.messages = list(answer)
        else:
            raise TypeError(
                f"the before_request hook {hook_name(hook)} returned {type(answer).__name__}; "
                f"return None, the request or a list of messages"
            )
    _check_request(request)
    copies.clear()
    for copy, original in own.values():
        if _equal(copy, original):
            copies[id(original)] = (original, copy)
    untouched = {id(copy): original for original, copy in copies.values()}
    request.messages = [untouched.get(id(message), message) for message in request.messages]
    return request


def _check_request(request: ModelRequest) -> None:
    if not isinstance(request.messages, list) or not all(isinstance(item, Message) for item in request.messages):
        raise TypeError("a before_request hook left request.messages as something else than a list of messages")
    if not isinstance(request.options, dict):
        raise TypeError("a before_request hook left request.options as something else than a dict")
    taken = sorted(_OWN.intersection(request.options))
    if taken:
        raise TypeError(
            f"a before_request hook put {', '.join(taken)} into request.options; these are attributes of the request, and the signal is the run's"
        )


_OWN = frozenset({"messages", "tools", "tool_choice", "output_format", "signal"})


def own_arguments(call: ToolCall) -> ToolCall:
    """The call with arguments of its own, which whoever gets it may change without changing the transcript."""
    return call._with(arguments=own_copy(call.arguments))


def hook_name(hook: Any) -> str:
    """The name a hook goes by."""
    return str(getattr(hook, "__name__", None) or type(hook).__name__)
