"""The results of calls that did not simply succeed, in words a model can act on and in data a program can count.

``denied``, ``interrupted``, ``timed_out`` and ``error`` are told apart by `status`; an interrupted call's
``details["started"]`` says whether it may have taken effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from rein_nb.ir import ToolCall, ToolResult
from rein_nb.ir.parts import ToolStatus
from rein_nb.tools.errors import describe_error, error_details
from rein_nb.tools.render import DEFAULT_MAX_CHARS, cut_text, with_whole_text


def outcome(
    call: ToolCall, status: ToolStatus, text: str, details: Any = None, max_chars: int = DEFAULT_MAX_CHARS
) -> ToolResult:
    """A result of any status with a text."""
    shown = cut_text(text, max_chars)
    if shown is not text:
        details = with_whole_text(details, text)
    return ToolResult(tool_call_id=call.id, name=call.name or None, content=shown, details=details, status=status)


def denied(call: ToolCall, reason: str | None = None) -> ToolResult:
    """The call was refused by a person, a policy or a hook; it was not executed."""
    why = f": {reason}" if reason else ""
    return outcome(
        call, "denied", f"Denied{why}. The tool {call.name} was not executed.", {"reason": reason, "started": False}
    )


def interrupted_while_running(call: ToolCall, reason: str | None = None) -> ToolResult:
    """The call was stopped while it ran: nobody knows what it did before that."""
    why = f" ({reason})" if reason else ""
    text = f"Interrupted while running{why}. The tool {call.name} may have taken effect, in whole or in part; check before repeating it."
    return outcome(call, "interrupted", text, {"started": True, "reason": reason})


def not_started(call: ToolCall, reason: str | None = None) -> ToolResult:
    """The run ended before this call began: it certainly had no effect."""
    why = f" ({reason})" if reason else ""
    text = f"Not started: the run was interrupted before the tool {call.name} was executed{why}. It had no effect."
    return outcome(call, "interrupted", text, {"started": False, "reason": reason})


def timed_out(call: ToolCall, timeout_s: float, partial: str | None = None, returned: Any = None) -> ToolResult:
    """The tool's own time was over; `partial` and `returned` are text and details of what it returned all the same."""
    text = f"Timed out after {timeout_s:g} s. The tool {call.name} may have taken effect, in whole or in part."
    if partial:
        text += f"\nIt returned when it was stopped: {partial}"
    details = {"started": True, "timeout_s": timeout_s}
    return outcome(call, "timed_out", text, details if returned is None else {**details, "returned": returned})


def failed(call: ToolCall, exc: BaseException, max_chars: int = DEFAULT_MAX_CHARS) -> ToolResult:
    """The tool raised."""
    return outcome(call, "error", f"Error: {describe_error(exc)}", error_details(exc), max_chars)


def invalid_arguments(call: ToolCall, message: str) -> ToolResult:
    """The arguments do not fit the tool's parameters; it was not executed."""
    return outcome(
        call, "error", f"{message} (The tool was not executed.)", {"invalid_arguments": True, "started": False}
    )


def malformed_call(call: ToolCall) -> ToolResult:
    """The arguments are not one complete JSON object; the tool was not executed."""
    raw = call.raw_arguments or ""
    tail = raw[-60:]
    size = f" after {len(raw)} characters, ending in {tail!r}" if raw else ""
    text = (
        f"The call of {call.name or 'a tool without a name'} was not executed: {call.error or 'it names no tool'}{size}. "
        f"Send the call again with its arguments as one complete JSON object."
    )
    return outcome(call, "error", text, {"malformed": True, "raw_arguments": call.raw_arguments, "started": False})


def unfinished_turn(call: ToolCall, why: str) -> ToolResult:
    """The model's turn did not end in success, so its calls must not run."""
    text = f"Not executed: {why}. The tool {call.name} was not started and had no effect."
    return outcome(call, "error", text, {"started": False, "reason": why})


def unknown_tool(call: ToolCall, names: Iterable[str]) -> ToolResult:
    """No tool of that name; says which there are, the nearest first."""
    known = list(names)
    near = difflib.get_close_matches(call.name, known, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    available = ", ".join(known) if known else "none"
    text = f"There is no tool named {call.name!r}.{hint} Available tools: {available}."
    return outcome(call, "error", text, {"unknown_tool": True, "nearest": near, "started": False})
