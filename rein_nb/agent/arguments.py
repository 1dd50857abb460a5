"""What an agent and a run are given: checked at once, with what would be right in the error, and brought into one form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

from pydantic import ValidationError

from rein_nb.agent.approvals import check_policy
from rein_nb.agent.context import Context
from rein_nb.agent.limits import Limits
from rein_nb.agent.output import OutputSpec
from rein_nb.agent.state import Setup
from rein_nb.ir import InvalidRequest, MediaPart, Message, TextPart, ToolChoice
from rein_nb.llm import LLM, as_messages, as_options
from rein_nb.tools import Toolset
from rein_nb.tools.callables import is_async

Prompt: TypeAlias = str | Message | Sequence[str | TextPart | MediaPart | Message]
"""What a run starts with: text, a message, or a list of texts and media (one message) or of messages."""

_SETUP = frozenset(f.name for f in fields(Setup)) - {"options"}

_HOOKS = ("before_tool_call", "after_tool_call", "before_request", "on_event")


def as_prompt(prompt: Prompt | None) -> list[Message]:
    """The messages that a prompt stands for.

    Raises
    ------
    InvalidRequest
        For anything that is no prompt.
    """
    if prompt is None:
        return []
    if isinstance(prompt, str):
        if not prompt:
            raise InvalidRequest("the prompt is empty")
        return [Message(role="user", content=prompt)]
    if isinstance(prompt, Message):
        return [prompt]
    if isinstance(prompt, TextPart | MediaPart):
        return [Message(role="user", parts=[prompt])]
    if not isinstance(prompt, Sequence):
        raise InvalidRequest(f"a prompt is text, a Message, or a list of texts and media, not {type(prompt).__name__}")
    if not prompt:
        raise InvalidRequest("the prompt is an empty list; None goes on from the conversation as it is")
    if all(isinstance(item, Message | Mapping) for item in prompt):
        return as_messages(prompt)
    if all(isinstance(item, str | TextPart | MediaPart) for item in prompt):
        return [Message(role="user", content=list(prompt))]
    kinds = sorted({type(item).__name__ for item in prompt})
    raise InvalidRequest(
        f"a list as a prompt holds messages, or texts and media, and not both: this one has {', '.join(kinds)}"
    )


def as_user_message(message: Prompt) -> Message:
    """One message of the user, from what a prompt may be.

    Raises
    ------
    InvalidRequest
        For anything that is not one.
    """
    found = as_prompt(message)
    if len(found) != 1 or found[0].role != "user":
        what = f"a message of the role {found[0].role!r}" if len(found) == 1 else f"{len(found)} messages"
        raise InvalidRequest(f"what is said to a run is text, or one message of the user, not {what}")
    return found[0]


def normalised(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in the form that a `Setup` has.

    Raises
    ------
    InvalidRequest
        For what could never work.
    """
    return {name: _NORMAL[name](value) if name in _NORMAL else value for name, value in given.items()}


def changed(setup: Setup, overrides: Mapping[str, Any]) -> Setup:
    """A setup with some of it replaced; names that are none of its own are model options.

    Raises
    ------
    InvalidRequest
        For what could never work, and for an unknown name.
    """
    if not overrides:
        return setup
    named = {name: value for name, value in overrides.items() if name in _SETUP}
    options = {name: value for name, value in overrides.items() if name not in _SETUP}
    as_options(options)
    return replace(setup, **normalised(named), options={**setup.options, **options})


def _llm(value: Any) -> LLM:
    if isinstance(value, str):
        return LLM.named(value)
    if not isinstance(value, type) and callable(getattr(value, "astream_events", None)):
        llm: LLM = value
        return llm
    raise InvalidRequest(f"a model is an LLM or a name like 'provider/model', not {_told(value)}")


def _several(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(value)
    return (value,)


def _limits(value: Any) -> Limits:
    if value is not None and not isinstance(value, Limits | Mapping):
        raise InvalidRequest(
            f"limits are Limits(...) or a dict of its fields ({', '.join(Limits.model_fields)}), not {_told(value)}"
        )
    try:
        return Limits.of(value)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        known = f"; the limits are {', '.join(Limits.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise InvalidRequest(f"limits: {where}: {first['msg']}{known}") from exc


def _context(value: Any) -> Context:
    if isinstance(value, Context):
        return value
    try:
        return Context() if value is None else Context(strategy=value)
    except ValueError as exc:
        raise InvalidRequest(f"context is a Context, or its strategy: {exc}") from exc


def _hooks(name: str) -> Callable[[Any], tuple[Any, ...]]:
    def check(value: Any) -> tuple[Any, ...]:
        found = _several(value)
        for hook in found:
            if not callable(hook):
                raise InvalidRequest(f"{name} takes functions, not {type(hook).__name__}")
            if name == "on_event":
                check_listener(hook)
        return found

    return check


def check_listener(listener: Any) -> None:
    """Raise at once for what can be no listener.

    Raises
    ------
    InvalidRequest
        When it cannot be called, or is an async function, which nobody would await.
    """
    if not callable(listener):
        raise InvalidRequest(f"a listener is a function of an event, not {type(listener).__name__}")
    if is_async(listener):
        raise InvalidRequest("a listener is a plain function of an event, not an async one: nobody would await it")


def _policy(value: Any) -> Any:
    check_policy(value)
    return value


def _text(name: str, none: bool = False) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not (isinstance(value, str) or (none and value is None)):
            raise InvalidRequest(f"{name} must be text, not {_told(value)}")
        return value

    return check


def _flag(value: Any) -> bool | None:
    if not (value is None or isinstance(value, bool)):
        raise InvalidRequest(f"interactive must be True, False or None, not {value!r}")
    return value


def _wait(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise InvalidRequest(
            f"approval_timeout_s must be a number of seconds, 0 or more, or None for ever, not {value!r}"
        )
    return value


def _retries(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"max_output_retries must be a whole number, 0 or more, not {value!r}")
    if value < 0:
        raise InvalidRequest(f"max_output_retries must be 0 or more, got {value}")
    return value


def _choice(value: Any) -> Any:
    try:
        ToolChoice.of(value)
    except ValidationError as exc:
        raise InvalidRequest(
            f"tool_choice is 'auto', 'none', 'required', a tool's name or a ToolChoice, not {value!r}: {exc.errors()[0]['msg']}"
        ) from exc
    return value


def _output_type(value: Any) -> Any:
    if value is not None:
        OutputSpec(value, native=False, taken=[])
    return value


_NORMAL: dict[str, Callable[[Any], Any]] = {
    "llm": _llm,
    # A toolset of the agent's own, in which one that is given stays live.
    "tools": lambda value: Toolset(value if isinstance(value, Iterable) else _several(value)),
    "system": _text("system", none=True),
    "limits": _limits,
    "approval": _policy,
    "approval_timeout_s": _wait,
    "interactive": _flag,
    "output_type": _output_type,
    "max_output_retries": _retries,
    "tool_choice": _choice,
    "context": _context,
    "fallback": lambda value: tuple(_llm(item) for item in _several(value)),
    "label": _text("label"),
    **{name: _hooks(name) for name in _HOOKS},
}


def _told(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
