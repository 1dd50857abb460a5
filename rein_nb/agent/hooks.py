"""Hooks: functions of yours that look at, change or refuse what the loop is about to do. Each may be plain or async.

- ``before_tool_call(call, ctx)`` returns None or True (go on), False or `Deny` (refuse), a dict (new arguments) or a `ToolCall` (new name or
  arguments; the id stays).
- ``after_tool_call(call, result, ctx)`` returns None (keep), a `ToolResult`, or any value, which becomes the result.
- ``before_request(request)`` changes the `ModelRequest` it is given or returns another (or just a list of messages), for this call only.

A hook that fails refuses the call it was asked about: what could not be checked is not run. `AbortRun` ends the run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rein_nb.ir import Message, ReinError, ToolCall, ToolResult, ToolSpec
from rein_nb.tools import ToolContext, outcomes
from rein_nb.tools.execute import EndsRun
from rein_nb.tools.render import DEFAULT_MAX_CHARS, describe_error, to_result


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


async def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a user's function answers, awaited where it can be. What it raises is always an `Exception`.

    Anything else would be taken by the task, or by the event loop itself, for an order to go down.

    Raises
    ------
    AbortRun, EndsRun
        To end the run; the second carries a KeyboardInterrupt.
    Exception
        Whatever else it raised.
    """
    try:
        answer = function(*arguments)
        return await answer if inspect.isawaitable(answer) else answer
    except KeyboardInterrupt as exc:
        raise EndsRun(exc) from exc
    except SystemExit as exc:
        raise RuntimeError(f"it called exit({exc.code!r})") from exc
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it was cancelled from inside") from exc
    except (Exception, GeneratorExit):
        raise
    except BaseException as exc:  # a test framework's own, a group
        raise RuntimeError(f"it raised {type(exc).__name__}: {exc}") from exc


async def before_tool_call(
    hooks: Sequence[BeforeToolCall], call: ToolCall, ctx: ToolContext[Any]
) -> tuple[ToolCall, ToolResult | None]:
    """(the call as the hooks left it, the refusal if one refused).

    Raises
    ------
    AbortRun
        When a hook wants the run to end.
    """
    for hook in hooks:
        try:
            answer = await ask(hook, call, ctx)
        except (AbortRun, EndsRun):
            raise
        except Exception as exc:
            return call, outcomes.denied(
                call, f"the hook {hook_name(hook)} failed ({describe_error(exc)}), so it was not allowed"
            )
        if answer is None or answer is True:
            continue
        if answer is False:
            return call, outcomes.denied(call, f"refused by {hook_name(hook)}")
        if isinstance(answer, Deny):
            return call, outcomes.denied(call, answer.reason)
        if isinstance(answer, ToolCall):
            call = answer.model_copy(update={"id": call.id})
        elif isinstance(answer, dict):
            call = call.model_copy(update={"arguments": answer, "raw_arguments": None, "error": None})
        else:
            why = f"the hook {hook_name(hook)} returned {type(answer).__name__}, which is no decision"
            return call, outcomes.denied(call, why)
    return call, None


async def after_tool_call(
    hooks: Sequence[AfterToolCall], call: ToolCall, result: ToolResult, ctx: ToolContext[Any]
) -> tuple[ToolResult, list[str]]:
    """(the result as the hooks left it, what went wrong in them)."""
    problems: list[str] = []
    for hook in hooks:
        try:
            answer = await ask(hook, call, result, ctx)
            if answer is not None:
                result = to_result(call, answer, DEFAULT_MAX_CHARS)
        except (AbortRun, EndsRun):
            raise
        except Exception as exc:
            problems.append(f"the hook {hook_name(hook)} failed ({describe_error(exc)}); the result is left as it was")
    return result, problems


async def before_request(hooks: Sequence[BeforeRequest], request: ModelRequest) -> ModelRequest:
    """The request as the hooks left it. What a hook raises is raised."""
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
    return request


def hook_name(hook: Any) -> str:
    """The name a hook goes by."""
    return str(getattr(hook, "__name__", None) or type(hook).__name__)
