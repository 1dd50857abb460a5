"""Healing: whatever interrupted a conversation, its transcript is valid for the next request. Pure; nothing is changed in place.

The encoders make any history *sendable* (ids, foreign reasoning, media). This pass makes the *record* right: every call has
exactly one result, right behind the message that made it, and says truthfully whether it may have run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from rein_nb.ir import Message, ToolCall, ToolResult
from rein_nb.tools.outcomes import outcome

MARK = "rein"
"""Our own namespace in a message's ``extra``."""


@dataclass(slots=True)
class Healed:
    """A valid transcript, and in words what had to be repaired."""

    messages: list[Message]
    repaired: list[str] = field(default_factory=list)


def heal(messages: Sequence[Message]) -> Healed:
    """Give every call exactly one result, in order, directly behind its message; drop what answers nothing.

    Messages that need no repair are passed on as they are, so healing a valid transcript changes nothing, and healing twice is
    healing once.

    Examples
    --------
    >>> from rein_nb.ir import ToolCall
    >>> cut = [Message(role="assistant", tool_calls=[ToolCall(id="1", name="ls")])]
    >>> [m.role for m in heal(cut).messages]
    ['assistant', 'tool']
    """
    healed = Healed([])
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if message.role != "assistant":
            kept = _without_results(message, healed)
            if kept is not None:
                healed.messages.append(kept)
            continue
        calls = message.tool_calls
        if not calls:
            healed.messages.append(message)
            continue
        given, later, at = _answers(messages, at, healed)
        named = with_ids(message, len(healed.messages))
        if named is not message:
            healed.repaired.append("a tool call without an id of its own got one")
        healed.messages.append(named)
        healed.messages.extend(_paired(named.tool_calls, calls, given, healed))
        healed.messages.extend(later)
    return healed


def _answers(
    messages: Sequence[Message], at: int, healed: Healed
) -> tuple[list[tuple[Message, ToolResult]], list[Message], int]:
    """(results that follow before the next assistant message, other messages between them, index after them).

    Results count as answers also when the user's words came between; the words move behind the results.
    """
    given: list[tuple[Message, ToolResult]] = []
    between: list[Message] = []
    end = at
    while end < len(messages) and messages[end].role != "assistant":
        message = messages[end]
        end += 1
        results = message.tool_results
        given.extend((message, result) for result in results)
        if not results:
            between.append(message)
        elif len(results) < len(message.parts):
            rest = [part for part in message.parts if not isinstance(part, ToolResult)]
            between.append(message.model_copy(update={"parts": rest}))
    return given, between, end


def _paired(
    calls: list[ToolCall], before: list[ToolCall], given: list[tuple[Message, ToolResult]], healed: Healed
) -> list[Message]:
    left = list(given)
    out: list[Message] = []
    for call, original in zip(calls, before, strict=True):
        found = next((pair for pair in left if pair[1].tool_call_id == original.id), None)
        if found is None:
            healed.repaired.append(f"the call {call.name or '(unnamed)'} {call.id} had no result")
            out.append(tool_message(lost_result(call)))
            continue
        left.remove(found)
        message, result = found
        if result.tool_call_id != call.id:
            out.append(tool_message(result.model_copy(update={"tool_call_id": call.id})))
        elif message.role == "tool" and len(message.parts) == 1:
            out.append(message)
        else:
            out.append(tool_message(result))
    for _, result in left:
        healed.repaired.append(f"a result for the unknown call {result.tool_call_id} was left out")
    return out


def _without_results(message: Message, healed: Healed) -> Message | None:
    results = message.tool_results
    if not results:
        return message
    for result in results:
        healed.repaired.append(f"a result for the unknown call {result.tool_call_id} was left out")
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    return message.model_copy(update={"parts": rest}) if rest else None


def with_ids(message: Message, at: int) -> Message:
    """The message with an id of its own for every call; itself when it has them.

    An id that is missing is made from the call and its place, `at` being the message's in its transcript: equal conversations get equal
    ids, so that a recorded one is found when it is played back.
    """
    calls = message.tool_calls
    ids = {call.id for call in calls}
    if len(ids) == len(calls) and "" not in ids:
        return message
    seen: set[str] = set()
    parts = []
    for n, part in enumerate(message.parts):
        if isinstance(part, ToolCall):
            if not part.id or part.id in seen:
                what = f"{at}.{n} {part.name} {part.arguments_text}".encode("utf-8", "surrogatepass")
                part = part.model_copy(update={"id": f"call_{hashlib.sha256(what).hexdigest()[:20]}"})
            seen.add(part.id)
        parts.append(part)
    return message.model_copy(update={"parts": parts})


def lost_result(call: ToolCall) -> ToolResult:
    """For a call whose outcome nobody recorded."""
    text = f"Interrupted: the result of {call.name or 'this tool'} was not recorded. It may have run; check before repeating it."
    return outcome(call, "interrupted", text, {"started": None, "reason": "no result was recorded"})


def tool_message(result: ToolResult) -> Message:
    """The message that holds one result."""
    return Message.model_construct(role="tool", parts=[result], origin=None, extra={})


def marked_interrupted(message: Message, why: str) -> Message:
    """An assistant message that was cut off, marked so in its ``extra``."""
    extra = {**message.extra, MARK: {**message.extra.get(MARK, {}), "interrupted": True, "finish_reason": why}}
    return message.model_copy(update={"extra": extra})
